"""A client that leaves gets its work stopped, its blocks freed and its lease settled."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from freehold.protocol import DEVICE, Delta, Usage
from tenancy.usage import Outcome
from tests.support.eventually import eventually
from tests.support.gateway import MODEL, GatewayWorld, chat_scope, listening, says
from tests.support.local_fleet import LocalFleet

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from fastapi import FastAPI
    from starlette.types import Message

    from freehold.protocol import GenerateRequest

MESSAGES = [{"role": "user", "content": "Hi"}]


async def endless(request: GenerateRequest) -> AsyncGenerator[Delta]:
    for i in range(1, 10_000):
        yield Delta(0, (7,), "x", Usage(len(request.token_ids), {DEVICE: 0}, i))
        await asyncio.sleep(0.001)


async def silent(request: GenerateRequest) -> AsyncGenerator[Delta]:
    await asyncio.Event().wait()
    async for delta in says("never")(request):
        yield delta


@asynccontextmanager
async def connection(
    world: GatewayWorld, path: str, body: dict[str, object]
) -> AsyncGenerator[asyncio.StreamReader]:
    """A raw connection that has sent its request; leaving the block hangs up."""
    async with listening(world.app) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        payload = json.dumps({"model": MODEL, **body}).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {world.alice_key}\r\n"
            f"content-length: {len(payload)}\r\n\r\n"
        )
        writer.write(head.encode() + payload)
        await writer.drain()
        try:
            yield reader
            writer.close()
            await eventually(lambda: len(world.admission.settled) == 1)
        finally:
            writer.transport.abort()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES, "stream": True}),
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/completions", {"prompt": ["a", "b"], "stream": True}),
        ("/v1/completions", {"prompt": ["a", "b"]}),
    ],
    ids=["chat stream", "chat", "two prompts, stream", "two prompts"],
)
@pytest.mark.parametrize("script", [endless, silent], ids=["while it answers", "while it waits"])
async def test_leaving_stops_everything(
    path: str,
    body: dict[str, object],
    script: Callable[[GenerateRequest], AsyncGenerator[Delta]],
) -> None:
    world = GatewayWorld()
    world.fleet.script = script
    num_prompts = 2 if "prompt" in body else 1

    with capture_logs() as logs:
        async with connection(world, path, body) as reader:
            await eventually(lambda: len(world.fleet.opened) == num_prompts)
            if "stream" in body and script is endless:
                await reader.readuntil(b'"x"')

    assert len(world.fleet.closed) == num_prompts
    ((_, outcome),) = world.admission.settled
    assert outcome is Outcome.CANCELLED
    assert world.admission.open.running == {}
    (line,) = [line for line in logs if line["event"] == "request"]
    assert (line["status"], line["outcome"]) == (499, "cancelled")


async def nothing_is_sent(message: Message) -> None:
    words = f"nobody is there to receive {message}"
    raise AssertionError(words)


async def test_leaving_before_the_body_is_complete_is_no_error_of_ours() -> None:
    world = GatewayWorld()
    messages: list[Message] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": b'{"model":', "more_body": True},
    ]

    async def receive() -> Message:
        return messages.pop()

    with capture_logs() as logs:
        await world.app(chat_scope(world.alice_key), receive, nothing_is_sent)

    (line,) = logs
    assert line["status"] == 499
    assert "error" not in line


async def test_a_connection_that_closes_while_sending_is_a_client_that_left() -> None:
    world = GatewayWorld()
    body = json.dumps({"model": MODEL, "messages": MESSAGES, "stream": True}).encode()
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise ConnectionResetError

    with capture_logs() as logs:
        await world.app(chat_scope(world.alice_key), receive, send)

    ((_, outcome),) = world.admission.settled
    assert outcome is Outcome.CANCELLED
    assert len(world.fleet.closed) == 1
    assert [line["status"] for line in logs] == [499]


async def leave_after(app: FastAPI, key: str, num_chunks: int, stream: bool) -> None:
    """Drive the application without a socket; hang up behind the ``num_chunks``-th chunk."""
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Tell me a long story. " * 3}],
            "stream": stream,
            "n": 2,
            "max_tokens": 40,
            "ignore_eos": True,
        }
    ).encode()
    left = asyncio.Event()
    if not stream:
        asyncio.get_running_loop().call_later(0.002 * num_chunks, left.set)
    requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    num_sent = 0

    async def receive() -> Message:
        if requests:
            return requests.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal num_sent
        if message["type"] == "http.response.body":
            num_sent += 1
            if num_sent >= num_chunks:
                left.set()
        await asyncio.sleep(0)

    await app(chat_scope(key), receive, send)


async def test_after_many_random_disconnects_the_engine_is_empty() -> None:
    fleet = LocalFleet()
    world = GatewayWorld(fleet=fleet)
    random = Random(7)
    try:
        for _ in range(20):
            await asyncio.gather(
                *(
                    leave_after(
                        world.app, world.alice_key, random.randrange(12), random.random() < 0.8
                    )
                    for _ in range(10)
                )
            )
        await eventually(lambda: fleet.engine.report().num_running == 0)
        report = fleet.engine.report()
    finally:
        fleet.close()

    assert report.num_waiting == 0
    assert report.active_blocks == 0
    assert report.free_blocks + report.cached_blocks == report.card.num_blocks
    assert report.healthy
    assert len(world.admission.settled) == 200
    assert world.admission.open.running == {}
    assert {outcome for _, outcome in world.admission.settled} >= {Outcome.CANCELLED}
