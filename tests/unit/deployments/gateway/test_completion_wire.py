from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from openai.types import Completion

from deployments.gateway.completion_wire import CompletionWire
from deployments.gateway.wire import AnswerHead
from freehold.protocol import Delta, FinishReason, PositionLogprobs, TokenLogprob, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = AnswerHead("cmpl-1", 1_900_000_000, "m", "0123456789abcdef")
USAGE = Usage(10, {}, 3)


def wire(n: int = 1, *, logprobs: bool = False, echoes: Sequence[str] = ()) -> CompletionWire:
    return CompletionWire(HEAD, n=n, logprobs=logprobs, include_usage=False, echoes=echoes)


def delta(text: str, index: int = 0, finish: FinishReason | None = None, **more: Any) -> Delta:
    return Delta(index, (5,), text, USAGE, finish_reason=finish, **more)


def choice(events: bytes) -> dict[str, Any]:
    chunk: dict[str, Any] = json.loads(events.removeprefix(b"data: "))
    (only,) = chunk["choices"]
    return dict(only)


def test_choices_are_numbered_by_prompt() -> None:
    completion = wire(n=2)
    for prompt in (1, 0):
        for index in (1, 0):
            completion.collect(prompt, delta(f"{prompt}{index}", index, FinishReason.STOP))

    answer = Completion.model_validate_json(completion.whole(USAGE), strict=True)

    assert [(c.index, c.text) for c in answer.choices] == [
        (0, "00"),
        (1, "01"),
        (2, "10"),
        (3, "11"),
    ]


def test_an_echo_comes_first_and_once() -> None:
    streamed = wire(echoes=["Once "])
    texts = [
        choice(streamed.events(0, delta("upon")))["text"],
        choice(streamed.events(0, delta(" a", finish=FinishReason.STOP)))["text"],
    ]
    whole = wire(echoes=["Once "])
    whole.collect(0, delta("upon"))
    whole.collect(0, delta(" a", finish=FinishReason.STOP))

    assert texts == ["Once upon", " a"]
    assert json.loads(whole.whole(USAGE))["choices"][0]["text"] == "Once upon a"


def test_offsets_go_on_from_chunk_to_chunk() -> None:
    completion = wire(logprobs=True)
    positions = [
        (PositionLogprobs(TokenLogprob(1, token, token.encode(), -1.0), ()),)
        for token in ("ab", "c", "d")
    ]
    offsets = [
        choice(completion.events(0, delta(p[0].chosen.token, logprobs=p)))["logprobs"][
            "text_offset"
        ]
        for p in positions
    ]

    assert offsets == [[0], [2], [3]]


def test_the_last_chunk_may_be_empty_but_for_its_reason() -> None:
    completion = wire()
    completion.events(0, delta("x"))

    assert completion.events(0, delta("")) == b""
    assert choice(completion.events(0, delta("", finish=FinishReason.LENGTH))) == {
        "index": 0,
        "text": "",
        "logprobs": None,
        "finish_reason": "length",
    }
