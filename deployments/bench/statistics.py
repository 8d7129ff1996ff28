"""Order statistics of measured seconds. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def percentile(values: Sequence[float], q: float) -> float:
    """The ``q``-th percentile (0 to 100), linear between neighbours.

    Raises:
        ValueError: no values, or ``q`` is out of range.
    """
    if not values or not 0 <= q <= 100:
        message = f"need values and 0 <= q <= 100, got {len(values)} values and q = {q}"
        raise ValueError(message)
    ordered = sorted(values)
    position = (len(ordered) - 1) * q / 100
    below, above = math.floor(position), math.ceil(position)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    return percentile(values, 50)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds, over ``count`` samples."""

    count: int
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        p50, p90, p99 = (percentile(seconds, q) for q in (50, 90, 99))
        return cls(len(seconds), math.fsum(seconds) / len(seconds), p50, p90, p99, max(seconds))
