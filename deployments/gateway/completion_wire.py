"""The format of ``/v1/completions`` answers. Choice ``j`` of prompt ``i`` has index ``i·n + j``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deployments.gateway.wire import EventWriter, floored, to_json, usage_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deployments.gateway.wire import AnswerHead
    from freehold.protocol import Delta, FinishReason, PositionLogprobs, Usage


@dataclass(slots=True)
class _Choice:
    num_chars: int
    """Of the tokens whose logprobs were written: where the next one starts in the text."""
    texts: list[str]
    logprobs: list[PositionLogprobs] = field(default_factory=list["PositionLogprobs"])
    finish_reason: FinishReason | None = None


class CompletionWire:
    """``echoes`` are the prompts as text (one each), or nothing."""

    def __init__(
        self,
        head: AnswerHead,
        *,
        n: int,
        logprobs: bool,
        include_usage: bool,
        echoes: Sequence[str] = (),
    ) -> None:
        self._head = head
        self._n = n
        self._wants_logprobs = logprobs
        self._echoes = echoes
        self._writer = EventWriter(head, "text_completion", include_usage=include_usage)
        self._choices: dict[int, _Choice] = {}

    def events(self, prompt_index: int, delta: Delta) -> bytes:
        index = prompt_index * self._n + delta.index
        choice = self._choices.get(index)
        text = delta.text
        if choice is None:
            echo = self._echo(prompt_index)
            choice = self._choices[index] = _Choice(len(echo), [])
            text = echo + text
        if not (text or delta.logprobs or delta.finish_reason):
            return b""
        logprobs = _logprobs(delta.logprobs, choice) if delta.logprobs else "null"
        return self._writer.chunk(_choice(index, text, logprobs, delta.finish_reason)).encode()

    def end(self, usage: Usage) -> bytes:
        return self._writer.end(usage)

    def collect(self, prompt_index: int, delta: Delta) -> None:
        index = prompt_index * self._n + delta.index
        choice = self._choices.get(index)
        if choice is None:
            echo = self._echo(prompt_index)
            choice = self._choices[index] = _Choice(len(echo), [echo])
        choice.texts.append(delta.text)
        choice.logprobs += delta.logprobs
        choice.finish_reason = delta.finish_reason

    def whole(self, usage: Usage) -> bytes:
        choices: list[str] = []
        for index, choice in sorted(self._choices.items()):
            logprobs = _logprobs(choice.logprobs, choice) if self._wants_logprobs else "null"
            text = "".join(choice.texts)
            choices.append(_choice(index, text, logprobs, choice.finish_reason))
        head = self._head.json("text_completion")
        return f'{head}"choices":[{",".join(choices)}],"usage":{usage_json(usage)}}}'.encode()

    def _echo(self, prompt_index: int) -> str:
        return self._echoes[prompt_index] if self._echoes else ""


def _choice(index: int, text: str, logprobs: str, finish_reason: FinishReason | None) -> str:
    reason = "null" if finish_reason is None else f'"{finish_reason.value}"'
    return (
        f'{{"index":{index},"text":{to_json(text)},"logprobs":{logprobs},"finish_reason":{reason}}}'
    )


def _logprobs(positions: Iterable[PositionLogprobs], choice: _Choice) -> str:
    tokens: list[str] = []
    logprobs: list[float] = []
    top: list[dict[str, float]] = []
    offsets: list[int] = []
    for position in positions:
        tokens.append(position.chosen.token)
        logprobs.append(floored(position.chosen.logprob))
        top.append({token.token: floored(token.logprob) for token in position.top})
        offsets.append(choice.num_chars)
        choice.num_chars += len(position.chosen.token)
    return to_json(
        {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets}
    )
