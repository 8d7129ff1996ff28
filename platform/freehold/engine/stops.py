"""When a choice ends: by a token, by a string in its text, or by length.

Text that could be the beginning of a stop string is held back until it is decided, so a stream
never shows a part of one. Knows token ids and text, not how one becomes the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freehold.protocol import FinishReason

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from freehold.protocol import SamplingParams


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a choice ended; ``reason`` is the matching string or token id, None otherwise."""

    finish_reason: FinishReason
    reason: str | int | None = None


def stop_token_ids(params: SamplingParams, eos_token_ids: AbstractSet[int]) -> frozenset[int]:
    """Every token that may end a choice, the end of sequence included unless it is ignored."""
    eos = frozenset[int]() if params.ignore_eos else frozenset(eos_token_ids)
    return eos | frozenset(params.stop_token_ids)


def stop_by_token(
    token_id: int, num_output: int, params: SamplingParams, eos_token_ids: AbstractSet[int]
) -> Stop | None:
    """Whether the newest token (number ``num_output``) ends the choice. Min-tokens come first."""
    if num_output < params.min_tokens:
        return None
    if token_id in params.stop_token_ids:
        return Stop(FinishReason.STOP, token_id)
    if token_id in eos_token_ids and not params.ignore_eos:
        return Stop(FinishReason.STOP)
    return None


class StopStrings:
    """Finds the stop string that is complete first, in text that arrives in pieces.

    The result does not depend on how the text was cut: of several matches the one that ends first
    wins, and of those the longest.
    """

    __slots__ = ("_held", "_include", "_stops")

    def __init__(self, stops: tuple[str, ...], *, include: bool) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._include = include
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Text that may be shown now, and the stop string that matched (the text ends there)."""
        if not self._stops:
            return text, None
        pending = self._held + text
        match = self._first_match(pending)
        if match is not None:
            start, stop = match
            self._held = ""
            return pending[: start + len(stop) if self._include else start], stop
        keep = self._undecided(pending)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep], None

    def flush(self) -> str:
        """The choice ended without a match: what was held back was no stop string."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[int, str] | None:
        found = [(text.find(stop), stop) for stop in self._stops]
        ends = [(start + len(stop), start, stop) for start, stop in found if start >= 0]
        if not ends:
            return None
        _, start, stop = min(ends)
        return start, stop

    def _undecided(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        longest = min(len(text), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            tail = text[len(text) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
