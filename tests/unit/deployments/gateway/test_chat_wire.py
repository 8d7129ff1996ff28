from __future__ import annotations

import json
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from deployments.gateway.chat_wire import ChatWire
from deployments.gateway.wire import DONE, AnswerHead
from freehold.protocol import (
    DEVICE,
    Delta,
    FinishReason,
    PositionLogprobs,
    TokenLogprob,
    Usage,
)

HEAD = AnswerHead("chatcmpl-1", 1_900_000_000, 'a "quoted" model', "0123456789abcdef")
USAGE = Usage(10, {DEVICE: 4}, 3)
LOGPROB = TokenLogprob(5, "é", "é".encode(), -0.25)
NEVER = TokenLogprob(6, "\ufffd", b"\xc3", float("-inf"))


def wire(*, logprobs: bool = False, include_usage: bool = False) -> ChatWire:
    return ChatWire(HEAD, logprobs=logprobs, include_usage=include_usage)


def delta(text: str, index: int = 0, finish: FinishReason | None = None, **more: Any) -> Delta:
    return Delta(index, (5,), text, USAGE, finish_reason=finish, **more)


def payloads(events: bytes) -> list[dict[str, Any]]:
    lines = [line for line in events.decode().split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_chunks_are_openais() -> None:
    chat = wire()
    chunks = [
        ChatCompletionChunk.model_validate(payload, strict=True)
        for events in (
            chat.events(0, delta('"\n\\ 你好🙂')),
            chat.events(0, delta("!", finish=FinishReason.STOP)),
        )
        for payload in payloads(events)
    ]

    assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant", None, None, None]
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", '"\n\\ 你好🙂', "!", None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]
    assert {chunk.model for chunk in chunks} == {'a "quoted" model'}
    assert chunks[0].system_fingerprint == "fp_0123456789ab"


def test_each_choice_is_introduced_once() -> None:
    chat = wire()
    roles = [
        (payload["choices"][0]["index"], payload["choices"][0]["delta"].get("role"))
        for index in (0, 1, 0, 1)
        for payload in payloads(chat.events(0, delta("x", index)))
    ]

    assert [index for index, role in roles if role] == [0, 1]


def test_a_delta_without_text_sends_nothing() -> None:
    chat = wire()
    chat.events(0, delta("x"))

    assert chat.events(0, delta("")) == b""


def test_usage_is_streamed_when_asked_for_and_only_then() -> None:
    assert wire().end(USAGE) == DONE
    assert "usage" not in payloads(wire().events(0, delta("x")))[0]

    asked = wire(include_usage=True)
    assert all(chunk["usage"] is None for chunk in payloads(asked.events(0, delta("x"))))
    end = asked.end(USAGE)
    assert end.endswith(DONE)
    (last,) = payloads(end.removesuffix(DONE))
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_nothing_cached_is_said_too() -> None:
    chat = wire()
    chat.collect(0, delta("x", finish=FinishReason.STOP))

    usage = json.loads(chat.whole(Usage(5, {}, 1)))["usage"]

    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


def test_a_whole_answer_is_openais() -> None:
    chat = wire(logprobs=True)
    positions = (PositionLogprobs(LOGPROB, (LOGPROB, NEVER)),)
    chat.collect(0, delta("one", 1, FinishReason.LENGTH))
    chat.collect(0, delta("Hel", logprobs=positions))
    chat.collect(0, delta("lo", finish=FinishReason.STOP))

    answer = ChatCompletion.model_validate_json(chat.whole(USAGE), strict=True)

    assert [choice.message.content for choice in answer.choices] == ["Hello", "one"]
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "length"]
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    (token,) = logprobs.content
    assert (token.token, token.bytes, token.logprob) == ("é", [0xC3, 0xA9], -0.25)
    assert [top.logprob for top in token.top_logprobs] == [-0.25, -9999.0]


def test_logprobs_are_streamed_with_their_text() -> None:
    chat = wire(logprobs=True)
    events = chat.events(0, delta("é", logprobs=(PositionLogprobs(LOGPROB, ()),)))

    chunk = payloads(events)[1]["choices"][0]

    assert chunk["delta"]["content"] == "é"
    assert [token["token"] for token in chunk["logprobs"]["content"]] == ["é"]
