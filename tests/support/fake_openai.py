"""An OpenAI-compatible service in a few lines, on a clock that only its own work moves.

Answers through ``httpx.MockTransport`` and, for streams, through an ``HTTPConnection`` without a
socket. A token is four characters of text;
a prompt's blocks of 16 tokens are remembered per service; computing a token takes a millisecond.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import re
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK_SIZE = 16
TEMPLATE_TOKENS = 8
SECONDS_A_TOKEN = 0.001
MODEL = "fake"


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeOpenAI:
    """``transport`` is what a client is given; ``bodies`` are the requests as they came."""

    def __init__(self, *, server_timing: str = "tokenize;dur=0.5, engine;dur=2") -> None:
        self.clock = FakeClock()
        self.bodies: list[dict[str, Any]] = []
        self.authorizations: list[str] = []
        self.max_in_flight = 0
        self.refuse_with: httpx.Response | None = None
        self.break_stream = False
        self._server_timing = server_timing
        self._in_flight = 0
        self._blocks: set[tuple[object, ...]] = set()
        self.transport = httpx.MockTransport(self._answer)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.authorizations.append(request.headers["authorization"])
        if self.refuse_with is not None:
            return self.refuse_with
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"object": "list", "data": [{"id": MODEL}]})
        body: dict[str, Any] = json.loads(request.content)
        self.bodies.append(body)
        self._in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self._in_flight)
        await asyncio.sleep(0)  # let the other users of a closed loop come in
        usage = self._generate(body)
        self._in_flight -= 1
        return httpx.Response(200, json={"choices": [], "usage": usage})

    def connection(self) -> http.client.HTTPConnection:
        """Streams chat answers."""
        connection = http.client.HTTPConnection("fake")
        connection.sock = _FakeSocket(self._stream)
        return connection

    def _stream(self, request: bytes) -> bytes:
        head, _, content = request.partition(b"\r\n\r\n")
        self.authorizations += re.findall("(?i)authorization: (.*)\r", head.decode() + "\r")
        if self.refuse_with is not None:
            body = self.refuse_with.content
            status = self.refuse_with.status_code
            return b"HTTP/1.1 %d No\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body
        self.bodies.append(json.loads(content))
        self._generate(self.bodies[-1])
        events = self._events().encode()
        return (
            b"HTTP/1.1 200 OK\r\nserver-timing: %s\r\ntransfer-encoding: chunked\r\n\r\n"
            b"%x\r\n%s\r\n0\r\n\r\n" % (self._server_timing.encode(), len(events), events)
        )

    def _generate(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = _tokens(body)
        blocks = [prompt[: end + BLOCK_SIZE] for end in range(0, len(prompt), BLOCK_SIZE)]
        blocks = [block for block in blocks if len(block) % BLOCK_SIZE == 0]
        reuse = body.get("cache") != "off"
        hits = 0
        while reuse and hits < len(blocks) and blocks[hits] in self._blocks:
            hits += 1
        cached = min(hits * BLOCK_SIZE, len(prompt) - 1)
        if reuse:
            self._blocks.update(blocks)
        output: int = body["max_tokens"]
        self.clock.now += (len(prompt) - cached + output) * SECONDS_A_TOKEN
        return {
            "prompt_tokens": len(prompt),
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _events(self) -> str:
        broken: dict[str, Any] = {"error": {"message": "the replica was lost", "type": "x"}}
        events: list[dict[str, Any]] = [
            {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
            {"choices": [{"delta": {"content": "Hello"}}]},
            broken if self.break_stream else {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        ]
        return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


class _FakeSocket:
    """What ``http.client`` needs of one: a request goes in whole, a response comes out."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._sent = b""

    def sendall(self, data: bytes) -> None:
        self._sent += data

    def makefile(self, _mode: str) -> io.BufferedReader:
        request, self._sent = self._sent, b""
        return io.BufferedReader(io.BytesIO(self._answer(request)))

    def close(self) -> None:
        """Nothing is open."""


def _tokens(body: dict[str, Any]) -> tuple[object, ...]:
    if "prompt" in body:
        return tuple(body["prompt"])
    text = "".join(message["content"] for message in body["messages"])
    template = tuple(f"<{i}>" for i in range(TEMPLATE_TOKENS))
    return template + tuple(text[i : i + 4] for i in range(0, len(text), 4))
