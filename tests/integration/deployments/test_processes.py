"""Real processes, made here and found by their mark; one of them is killed as a driver would be."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from deployments.serving import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def start() -> Generator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts Python with a script; whatever is left at the end is killed."""
    with contextlib.ExitStack() as started:

        def run(script: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
            process = started.enter_context(
                subprocess.Popen(  # noqa: S603  # scripts of ours
                    [sys.executable, "-c", script],
                    env={**os.environ, **(env or {})},
                    stdout=subprocess.PIPE,
                )
            )
            started.callback(process.kill)
            return process

        yield run


def test_the_marked_are_members_whoever_their_parent_is(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    marked = start(SLEEP, {processes.MARK: str(tmp_path)})
    start(SLEEP)
    start(SLEEP, {processes.MARK: str(tmp_path / "another")})

    assert [process.pid for process in processes.members(tmp_path)] == [marked.pid]


def test_a_reader_of_its_logs_is_no_member(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    (tmp_path / "log").touch()
    reader = start(f"file = open({str(tmp_path / 'log')!r}); print('open', flush=True); {SLEEP}")
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"open\n"

    assert not processes.members(tmp_path)


def test_the_end_spares_nobody_who_belongs_and_nobody_else(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    marked = start(stubborn + SLEEP, {processes.MARK: str(tmp_path)})
    other = start(SLEEP)

    processes.end(tmp_path, patience_s=0)

    assert marked.wait(timeout=60) < 0
    assert other.poll() is None


def test_the_keeper_ends_what_a_killed_driver_leaves(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    driver = start(
        "import os, subprocess, sys, time\n"
        "from pathlib import Path\n"
        "from deployments.serving import processes\n"
        "from deployments.serving.keeper import kept\n"
        f"with kept(Path({str(run_dir)!r})):\n"
        f"    os.environ[processes.MARK] = {str(run_dir)!r}\n"
        f"    subprocess.Popen([sys.executable, '-c', {SLEEP!r}])\n"
        "    print('started', flush=True)\n"
        "    time.sleep(600)\n"
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == b"started\n"
    below = psutil.Process(driver.pid).children()
    assert len(below) == 2  # the keeper and the marked one

    driver.kill()
    driver.wait()

    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive
    assert not run_dir.exists()


def test_the_keeper_of_a_driver_that_ends_well_has_nothing_to_do(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    script = (
        "from pathlib import Path\n"
        "from deployments.serving.keeper import kept\n"
        f"with kept(Path({str(run_dir)!r})):\n"
        "    pass\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=60)  # noqa: S603

    assert done.returncode == 0
    assert not run_dir.exists()
