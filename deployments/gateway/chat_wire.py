"""The format of ``/v1/chat/completions`` answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deployments.gateway.wire import EventWriter, floored, to_json, usage_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deployments.gateway.wire import AnswerHead
    from freehold.protocol import Delta, FinishReason, PositionLogprobs, TokenLogprob, Usage


@dataclass(slots=True)
class _Choice:
    texts: list[str] = field(default_factory=list[str])
    logprobs: list[PositionLogprobs] = field(default_factory=list["PositionLogprobs"])
    finish_reason: FinishReason | None = None


class ChatWire:
    def __init__(self, head: AnswerHead, *, logprobs: bool, include_usage: bool) -> None:
        self._head = head
        self._wants_logprobs = logprobs
        self._writer = EventWriter(head, "chat.completion.chunk", include_usage=include_usage)
        self._introduced: set[int] = set()
        self._choices: dict[int, _Choice] = {}

    def events(self, prompt_index: int, delta: Delta) -> bytes:
        chunks: list[str] = []
        if delta.index not in self._introduced:
            self._introduced.add(delta.index)
            role = '"role":"assistant","content":"","refusal":null'
            chunks.append(self._chunk(delta.index, role))
        if delta.text or delta.logprobs:
            content = f'"content":{to_json(delta.text)}'
            chunks.append(self._chunk(delta.index, content, delta.logprobs))
        if delta.finish_reason is not None:
            reason = f'"{delta.finish_reason.value}"'
            chunks.append(self._chunk(delta.index, "", finish_reason=reason))
        return "".join(chunks).encode()

    def end(self, usage: Usage) -> bytes:
        return self._writer.end(usage)

    def collect(self, prompt_index: int, delta: Delta) -> None:
        choice = self._choices.setdefault(delta.index, _Choice())
        choice.texts.append(delta.text)
        choice.logprobs += delta.logprobs
        choice.finish_reason = delta.finish_reason

    def whole(self, usage: Usage) -> bytes:
        choices = ",".join(self._choice(i, choice) for i, choice in sorted(self._choices.items()))
        head = self._head.json("chat.completion")
        return f'{head}"choices":[{choices}],"usage":{usage_json(usage)}}}'.encode()

    def _chunk(
        self,
        index: int,
        delta: str,
        logprobs: Sequence[PositionLogprobs] = (),
        finish_reason: str = "null",
    ) -> str:
        return self._writer.chunk(
            f'{{"index":{index},"delta":{{{delta}}},'
            f'"logprobs":{_logprobs(logprobs) if logprobs else "null"},'
            f'"finish_reason":{finish_reason}}}'
        )

    def _choice(self, index: int, choice: _Choice) -> str:
        reason = "null" if choice.finish_reason is None else f'"{choice.finish_reason.value}"'
        logprobs = _logprobs(choice.logprobs) if self._wants_logprobs else "null"
        return (
            f'{{"index":{index},"message":{{"role":"assistant",'
            f'"content":{to_json("".join(choice.texts))},"refusal":null}},'
            f'"logprobs":{logprobs},"finish_reason":{reason}}}'
        )


def _logprobs(positions: Iterable[PositionLogprobs]) -> str:
    content = [
        {**_token(position.chosen), "top_logprobs": [_token(token) for token in position.top]}
        for position in positions
    ]
    return to_json({"content": content, "refusal": None})


def _token(token: TokenLogprob) -> dict[str, object]:
    return {
        "token": token.token,
        "logprob": floored(token.logprob),
        "bytes": list(token.token_bytes),
    }
