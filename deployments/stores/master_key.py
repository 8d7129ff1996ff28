"""Where the master key comes from: an environment variable or a file that only its owner reads.

There is no default and nothing here invents one in passing; ``create_master_key_file`` is for the
demo and says so by its name. Both places hold base64 of 32 bytes (``openssl rand -base64 32``).
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
from typing import TYPE_CHECKING

from freehold.errors import FreeholdError
from freehold.secret import Secret
from tenancy.sealing import SECRET_BYTES, MasterKey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MASTER_KEY_VARIABLE = "FREEHOLD_MASTER_KEY"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MAX_FILE_BYTES = 1024


class MasterKeyUnusable(FreeholdError):
    """``source`` is a file or a variable; its contents never appear."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source = source
        self.reason = reason

    def __str__(self) -> str:
        return f"master key in {self.source}: {self.reason}"


def load_master_key(path: Path, environ: Mapping[str, str] | None = None) -> MasterKey:
    """``FREEHOLD_MASTER_KEY`` if it is set (even badly), else the file at ``path``.

    Raises:
        MasterKeyUnusable: neither is there, it is malformed, or others could read the file.
    """
    variable = (os.environ if environ is None else environ).get(MASTER_KEY_VARIABLE)
    if variable is not None:
        return _decode(variable, MASTER_KEY_VARIABLE)
    return _decode(_read_private(path), str(path))


def create_master_key_file(path: Path) -> MasterKey:
    """Make a new key in a new file (mode 600), or load the one that is there already.

    Losing this file loses every API key and cache epoch in the database.

    Raises:
        MasterKeyUnusable: the file exists and cannot be used.
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = base64.b64encode(secrets.token_bytes(SECRET_BYTES)) + b"\n"
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # A link never replaces: of two processes that start at once, one's key wins for both.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return _decode(_read_private(path), str(path))


def _read_private(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        hint = f"{error.strerror}; set {MASTER_KEY_VARIABLE} or create the file (mode 600)"
        raise MasterKeyUnusable(str(path), hint) from None
    try:
        mode = os.fstat(descriptor).st_mode  # of what is open, not of what the name means by now
        problem = _problem(mode)
        if problem is not None:
            raise MasterKeyUnusable(str(path), problem)
        return os.read(descriptor, _MAX_FILE_BYTES).decode("ascii", errors="replace")
    finally:
        os.close(descriptor)


def _problem(mode: int) -> str | None:
    if not stat.S_ISREG(mode):
        return "not a regular file"
    if mode & _OTHERS:
        return f"mode {stat.S_IMODE(mode):03o} lets others read or change it; chmod 600"
    return None


def _decode(text: str, source: str) -> MasterKey:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != SECRET_BYTES:
        raise MasterKeyUnusable(source, f"expected base64 of {SECRET_BYTES} bytes")
    return MasterKey(Secret(key))
