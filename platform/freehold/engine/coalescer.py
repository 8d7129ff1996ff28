"""Joins a choice's deltas so that a stream wakes its reader every few milliseconds, not per token.

Decides when a delta is due: a choice's first and last at once, others once the interval has
passed. Knows neither streams nor threads; the time is handed in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freehold.protocol import Delta, RequestId


@dataclass(slots=True)
class _Buffer:
    deltas: list[Delta] = field(default_factory=list["Delta"])
    sent_s: float | None = None


class Coalescer:
    """Holds what was not handed over yet, by request and choice."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._buffers: dict[RequestId, dict[int, _Buffer]] = {}

    def add(self, request_id: RequestId, delta: Delta) -> None:
        choices = self._buffers.setdefault(request_id, {})
        choices.setdefault(delta.index, _Buffer()).deltas.append(delta)

    def due(self, now_s: float) -> list[tuple[RequestId, Delta]]:
        """Take what should be handed over now, joined."""
        taken: list[tuple[RequestId, Delta]] = []
        for request_id, choices in self._buffers.items():
            for buffer in choices.values():
                if buffer.deltas and self._is_due(buffer, now_s):
                    taken.append((request_id, joined(buffer.deltas)))
                    buffer.deltas = []
                    buffer.sent_s = now_s
        return taken

    def forget(self, request_id: RequestId) -> None:
        """The request is over; what is still held goes nowhere."""
        self._buffers.pop(request_id, None)

    def _is_due(self, buffer: _Buffer, now_s: float) -> bool:
        return (
            buffer.sent_s is None
            or buffer.deltas[-1].finish_reason is not None
            or now_s - buffer.sent_s >= self._interval_s
        )


def joined(deltas: Sequence[Delta]) -> Delta:
    """Successive deltas of one choice as one."""
    if len(deltas) == 1:
        return deltas[0]
    return replace(
        deltas[-1],
        token_ids=tuple(token for delta in deltas for token in delta.token_ids),
        text="".join(delta.text for delta in deltas),
        logprobs=tuple(position for delta in deltas for position in delta.logprobs),
        timing=deltas[0].timing,
    )
