"""Where a request's time went, stage by stage, and the ``Server-Timing`` header that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class StageTimer:
    """Laps of one request. One task (or the thread it waits for) uses it at a time."""

    __slots__ = ("_clock", "_last", "_stages_s", "_started")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = self._last = clock()
        self._stages_s: dict[str, float] = {}

    def lap(self, stage: str) -> float:
        """The time since the last lap belongs to ``stage``; returns it."""
        now = self._clock()
        lap_s = now - self._last
        self._last = now
        self.add(stage, lap_s)
        return lap_s

    def skip(self) -> None:
        """The time since the last lap belongs to no stage."""
        self._last = self._clock()

    def add(self, stage: str, duration_s: float) -> None:
        self._stages_s[stage] = self._stages_s.get(stage, 0.0) + duration_s

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started

    @property
    def stages_s(self) -> Mapping[str, float]:
        return self._stages_s

    def header(self) -> str:
        """``authenticate;dur=0.061, …, total;dur=2.310`` in milliseconds."""
        stages = [*self._stages_s.items(), ("total", self.elapsed_s)]
        return ", ".join(f"{stage};dur={duration_s * 1000:.3f}" for stage, duration_s in stages)
