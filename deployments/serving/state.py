"""The service's folder on disk: private files, written whole or not at all.

Decides names and modes (700, 600) of what a running service leaves for its own commands; the
database and the master key in the same folder are the control plane's business.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from freehold.errors import FreeholdError
from freehold.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Generator

TOKEN_BYTES = 32


class StateInUse(FreeholdError):
    """Another service works on the same folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = folder

    def __str__(self) -> str:
        return f"service.state_dir: another freehold serve is using {self.folder}"


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Paths below ``service.state_dir``."""

    path: Path

    @property
    def ray_token(self) -> Path:
        """Whoever reads it commands the Ray cluster; new at every start."""
        return self.path / "ray.token"

    @property
    def operator_token(self) -> Path:
        """Whoever reads it may read ``freehold status``; new at every start."""
        return self.path / "operator.token"

    @property
    def service_file(self) -> Path:
        """Where the running service is; there while it is ready."""
        return self.path / "service.json"

    @property
    def demo_file(self) -> Path:
        """The demo's signal that it is ready, with keys to use; there while it is."""
        return self.path / "demo.json"

    def create(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Hold the folder for one service; the kernel lets go if the process dies.

        Raises:
            StateInUse: another process holds it.
        """
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StateInUse(str(self.path)) from None
            yield

    def forget_last_run(self) -> None:
        """Drop what a service that was killed left behind. For the holder of the lock only."""
        self.service_file.unlink(missing_ok=True)
        self.demo_file.unlink(missing_ok=True)


def new_token(path: Path) -> None:
    write_private(path, secrets.token_hex(TOKEN_BYTES))


def read_token(path: Path) -> Secret:
    return Secret(path.read_bytes().strip())


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` in one step; its contents are never readable by others (mode 600)."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_private_json(path: Path, value: object) -> None:
    write_private(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, object] | None:
    """The mapping in ``path``, None when there is no such file or it holds something else."""
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None
