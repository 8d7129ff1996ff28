from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.progress import Progress as Bar

from deployments.bench.progress import BarProgress


def test_progress_shows_one_bar_a_phase() -> None:
    bar = Bar(console=Console(file=StringIO()))
    progress = BarProgress(bar)
    progress.advance()  # before any phase: nothing to move
    for name, total in (("warm-up", 2), ("round 1", 3)):
        progress.phase(name, total)
        progress.advance()

    assert [(task.description, task.total, task.completed) for task in bar.tasks] == [
        ("warm-up", 2, 1),
        ("round 1", 3, 1),
    ]
