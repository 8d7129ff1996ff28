"""What the two endpoints' answers have in common: usage, logprobs' floor, server-sent events.

Chunks are put together from parts that are encoded once a request; only text, logprobs and usage
are encoded when they come.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from deployments.gateway.errors import WireError
    from freehold.protocol import Delta, Usage

to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
DONE = b"data: [DONE]\n\n"
MIN_LOGPROB = -9999.0
"""What OpenAI says for a token that is all but impossible; JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The members that every chunk of one answer repeats."""

    answer_id: str
    created_s: int
    model: str
    fingerprint: str

    def json(self, kind: str) -> str:
        """``{"id":…,…,`` without an end, for the rest to be appended."""
        head = {
            "id": self.answer_id,
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": f"fp_{self.fingerprint[:12]}",
        }
        return to_json(head)[:-1] + ","


class AnswerWire(Protocol):
    """One answer's format. Either ``events`` and ``end``, or ``collect`` and ``whole``."""

    def events(self, prompt_index: int, delta: Delta) -> bytes:
        """Server-sent events for what one choice gained; may be empty."""
        ...

    def end(self, usage: Usage) -> bytes:
        """The last events of a complete stream."""
        ...

    def collect(self, prompt_index: int, delta: Delta) -> None: ...

    def whole(self, usage: Usage) -> bytes: ...


def usage_json(usage: Usage) -> str:
    """``cached_tokens`` is always there: a 0 is an answer too."""
    return (
        f'{{"prompt_tokens":{usage.prompt},"completion_tokens":{usage.output},'
        f'"total_tokens":{usage.prompt + usage.output},'
        f'"prompt_tokens_details":{{"cached_tokens":{usage.cached}}}}}'
    )


def error_event(error: WireError) -> bytes:
    return b"data: " + error.body() + b"\n\n"


def floored(logprob: float) -> float:
    """Finite; NaN becomes the floor too."""
    return max(MIN_LOGPROB, logprob)


class EventWriter:
    """Chunks of one stream: a constant head, choices, a constant tail."""

    def __init__(self, head: AnswerHead, kind: str, *, include_usage: bool) -> None:
        self._head = f"data: {head.json(kind)}"
        self._include_usage = include_usage
        self._tail = '],"usage":null}\n\n' if include_usage else "]}\n\n"

    def chunk(self, choice: str) -> str:
        return f'{self._head}"choices":[{choice}{self._tail}'

    def end(self, usage: Usage) -> bytes:
        if not self._include_usage:
            return DONE
        last = f'{self._head}"choices":[],"usage":{usage_json(usage)}}}\n\n'
        return last.encode() + DONE
