"""The ``Server-Timing`` header splits the wait for the first token by whose it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from deployments.bench.server_timing import parse_server_timing
from freehold.protocol import Delta, EngineTiming, FinishReason, Usage
from tests.support.gateway import MODEL, GatewayWorld, ScriptedFleet

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from deployments.gateway.ports import RouteHint
    from freehold.protocol import GenerateRequest
    from tests.support.gateway import ScriptedStream


class SlowlyDecidingFleet(ScriptedFleet):
    """Takes 10 ms of the way to the first delta to choose a replica."""

    async def open(self, request: GenerateRequest, hint: RouteHint) -> ScriptedStream:
        stream = await super().open(request, hint)
        stream.route = replace(stream.route, decision_s=0.010)
        return stream


@pytest.mark.parametrize("stream", [False, True])
async def test_the_way_to_the_engine_is_what_neither_it_nor_the_decision_took(
    stream: bool,
) -> None:
    fleet = SlowlyDecidingFleet()
    world = GatewayWorld(fleet=fleet)

    async def script(request: GenerateRequest) -> AsyncGenerator[Delta]:
        world.plane.clock.advance(0.100)
        usage = Usage(len(request.token_ids), {}, 1)
        timing = EngineTiming(scheduled_s=0.02, first_token_s=0.06)
        yield Delta(0, (7,), "Hi", usage, finish_reason=FinishReason.STOP, timing=timing)

    fleet.script = script
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    async with world.client() as client:
        response = await client.post("/v1/chat/completions", json=body)

    stages_s = parse_server_timing(response.headers["server-timing"])
    assert stages_s["route"] == pytest.approx(0.010)
    assert stages_s["engine"] == pytest.approx(0.060)
    assert stages_s["hand_over"] == pytest.approx(0.030)
    assert stages_s["total"] == pytest.approx(0.100)
