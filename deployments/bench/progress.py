"""What a benchmark tells while it runs, and one way to show it. Knows no benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


class Progress(Protocol):
    """What a benchmark tells while it runs."""

    def phase(self, name: str, total: int) -> None:
        """The next ``total`` steps are of this phase."""
        ...

    def advance(self) -> None: ...


class BarProgress:
    """One bar a phase, on rich's display."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def phase(self, name: str, total: int) -> None:
        self._task = self._bar.add_task(name, total=total)

    def advance(self) -> None:
        if self._task is not None:
            self._bar.advance(self._task)
