"""What the engine measures of itself: counters that only grow, and smoothed step times.

Decides how many prompt tokens may ride along with decodes (from the measured rate); knows no
clock: durations are handed in.
"""

from __future__ import annotations

from dataclasses import dataclass

_SMOOTHING = 0.2
"""Weight of the newest step: some ten steps of memory, so a step disturbed by others fades."""
_MIN_SAMPLE_TOKENS = 16
"""Shorter chunks measure a step's fixed cost, not the rate."""


@dataclass(slots=True)
class Counters:
    """Totals since the start, as ``ReplicaReport`` publishes them."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_prefill_tokens: int = 0
    output_tokens: int = 0
    num_preemptions: int = 0
    num_finished: int = 0
    num_aborted: int = 0


@dataclass(slots=True)
class StepTimes:
    """Smoothed prefill rate and duration of a step that only decodes; 0 until measured."""

    prefill_tokens_per_s: float = 0.0
    decode_step_s: float = 0.0

    def observe(self, num_prefill_tokens: int, num_decodes: int, elapsed_s: float) -> None:
        """Learn from one step; in a mixed one the decodes' usual share is taken off first."""
        if num_prefill_tokens == 0:
            self.decode_step_s = _smoothed(self.decode_step_s, elapsed_s)
        elif num_prefill_tokens >= _MIN_SAMPLE_TOKENS:
            share_s = min(self.decode_step_s, elapsed_s / 2) if num_decodes else 0.0
            rate = num_prefill_tokens / max(elapsed_s - share_s, 1e-6)
            self.prefill_tokens_per_s = _smoothed(self.prefill_tokens_per_s, rate)

    def prefill_budget(
        self, num_decodes: int, *, max_step_tokens: int, max_step_s: float, min_chunk_tokens: int
    ) -> int:
        """Prompt tokens that the next step may compute beside ``num_decodes`` decode rows."""
        room = max_step_tokens - num_decodes
        if num_decodes == 0 or self.prefill_tokens_per_s == 0:
            return room
        affordable = int(self.prefill_tokens_per_s * (max_step_s - self.decode_step_s))
        return min(room, max(affordable, min_chunk_tokens))


def _smoothed(old: float, new: float) -> float:
    return new if old == 0 else old + _SMOOTHING * (new - old)
