from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from deployments.gateway.ports import ReplicaLost, RouteHint
from deployments.gateway.streams import prompt_streams
from freehold.protocol import RequestId
from tests.support.engines import make_request
from tests.support.gateway import ScriptedFleet, says

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from deployments.gateway.streams import PromptStreams
    from freehold.protocol import Delta, GenerateRequest

REQUESTS = [replace(make_request([i]), request_id=RequestId(f"r-{i}")) for i in range(3)]


async def drain(streams: PromptStreams) -> list[tuple[int, str]]:
    taken: list[tuple[int, str]] = []
    while (item := await streams.next()) is not None:
        taken.append((item[0], item[1].text))
    return taken


@pytest.mark.parametrize("num_prompts", [1, 3])
async def test_every_prompt_is_answered_and_closed(num_prompts: int) -> None:
    fleet = ScriptedFleet(says("a", "b"))
    streams = prompt_streams(fleet, REQUESTS[:num_prompts], RouteHint())

    await streams.open()
    taken = await drain(streams)
    await streams.aclose()

    for prompt in range(num_prompts):
        assert [text for index, text in taken if index == prompt] == ["a", "b"]
    assert len(taken) == 2 * num_prompts
    assert len(fleet.closed) == num_prompts
    assert streams.route is not None


async def test_prompts_run_side_by_side() -> None:
    everyone_is_here = asyncio.Barrier(3)

    async def meet(request: GenerateRequest) -> AsyncGenerator[Delta]:
        await everyone_is_here.wait()
        async for delta in says("x")(request):
            yield delta

    streams = prompt_streams(ScriptedFleet(meet), REQUESTS, RouteHint())
    await streams.open()

    assert len(await drain(streams)) == 3
    await streams.aclose()


async def test_a_slow_reader_slows_the_engines_down() -> None:
    made = 0

    async def chatter(request: GenerateRequest) -> AsyncGenerator[Delta]:
        nonlocal made
        async for delta in says(*["x"] * 1000)(request):
            made += 1
            yield delta

    streams = prompt_streams(ScriptedFleet(chatter), REQUESTS, RouteHint())
    await streams.open()
    await streams.next()
    for _ in range(5000):
        await asyncio.sleep(0)

    assert made < 50
    await streams.aclose()


@pytest.mark.parametrize("num_prompts", [1, 3])
async def test_a_failure_ends_all(num_prompts: int) -> None:
    async def dies(request: GenerateRequest) -> AsyncGenerator[Delta]:
        if request.request_id == "r-0":
            raise ReplicaLost(reason="killed")
        async for delta in says("x")(request):
            yield delta

    fleet = ScriptedFleet(dies)
    streams = prompt_streams(fleet, REQUESTS[:num_prompts], RouteHint())
    await streams.open()

    with pytest.raises(ReplicaLost):
        await drain(streams)
    await streams.aclose()

    assert len(fleet.closed) == num_prompts


async def test_closing_early_closes_every_stream() -> None:
    async def hangs(request: GenerateRequest) -> AsyncGenerator[Delta]:
        async for delta in says("x", "y")(request):
            yield delta
            await asyncio.Event().wait()

    fleet = ScriptedFleet(hangs)
    streams = prompt_streams(fleet, REQUESTS, RouteHint())
    await streams.open()
    await streams.next()
    await streams.aclose()

    assert sorted(fleet.closed) == ["r-0", "r-1", "r-2"]
