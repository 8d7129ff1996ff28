"""Outlives ``freehold serve`` by a moment, and ends what it left behind when it was killed.

A process of its own that waits for the end of its standard input: the kernel closes the other end
whatever happens to the driver. Run as ``python -m deployments.serving.keeper RUN_DIR``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deployments.serving import processes

if TYPE_CHECKING:
    from collections.abc import Generator

PATIENCE_S = 3.0
"""Ray's processes notice the driver's death by themselves, most of them at once."""


@contextlib.contextmanager
def kept(run_dir: Path) -> Generator[None]:
    """Keep watch while the body runs. To be entered before the mark is in the environment."""
    environment = {name: value for name, value in os.environ.items() if name != processes.MARK}
    command = [sys.executable, "-m", "deployments.serving.keeper", str(run_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment):  # noqa: S603  # our own module
        yield


def main() -> None:
    run_dir = Path(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal sends them to the whole group
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    processes.end(run_dir, PATIENCE_S)
    shutil.rmtree(run_dir, ignore_errors=True)


if __name__ == "__main__":
    main()
