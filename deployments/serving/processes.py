"""The processes of one service, found by a mark in their environment, and ended by their ids.

Ray's own clean-up misses some when the driver is killed (its agents, HAProxy), and an orphan has
no parent to be found by. Every process below the driver inherits the mark; one that has written
its title over its environment is known by its log file in the run folder.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK = "FREEHOLD_RUN_DIR"
"""Its value, the run folder, is random and new at every start."""


def members(run_dir: Path) -> Sequence[psutil.Process]:
    """All living ones but the caller."""
    this = psutil.Process().pid
    return [p for p in psutil.process_iter() if p.pid != this and _belongs(p, run_dir)]


def end(run_dir: Path, patience_s: float) -> None:
    """Wait for them to end by themselves for so long, then kill the rest."""
    _, alive = psutil.wait_procs(members(run_dir), timeout=patience_s)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=patience_s)


def _belongs(process: psutil.Process, run_dir: Path) -> bool:
    """False for the ended, for zombies, and for those of other users."""
    try:
        environment = process.environ()
        if environment:
            return environment.get(MARK) == str(run_dir)
        return any(Path(file.path).is_relative_to(run_dir) for file in process.open_files())
    except (psutil.Error, OSError):
        return False
