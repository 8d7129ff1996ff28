"""Where things that are made once are kept: converted models, compiled kernels, file digests.

Decides the folder and that nothing half-made is ever seen there. Refuses to know what is kept.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

ENV_CACHE = "FREEHOLD_CACHE"


def cache_root() -> Path:
    """``$FREEHOLD_CACHE`` if set, else ``~/.cache/freehold``; it need not exist."""
    override = os.environ.get(ENV_CACHE)
    return Path(override).expanduser() if override else Path.home() / ".cache" / "freehold"


@contextmanager
def atomic_folder(target: Path) -> Generator[Path]:
    """A scratch folder beside ``target`` that becomes ``target`` when the block ends well.

    If another process made ``target`` meanwhile, its work stands and ours is dropped: both made
    the same thing.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield scratch
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_atomically(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(scratch).replace(target)
