"""What a client is told when something behind the gateway fails, and what is settled then."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from deployments.gateway.ports import ReplicaLost
from deployments.gateway.services import GatewayLimits
from freehold.errors import CapacityExceeded, EngineDead, InvalidRequest, StepFailed
from freehold.protocol import FinishReason
from tenancy.admission import Rejected
from tenancy.usage import Outcome
from tests.support.gateway import MODEL, GatewayWorld, says

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    import httpx

    from freehold.protocol import Delta, GenerateRequest, Usage

CHAT = "/v1/chat/completions"
BODY: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
STREAM: dict[str, object] = {**BODY, "stream": True}
Script = "Callable[[GenerateRequest], AsyncGenerator[Delta]]"


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld()


async def post(world: GatewayWorld, body: dict[str, object]) -> httpx.Response:
    async with world.client() as client:
        return await client.post(CHAT, json=body)


def fails_after(
    num_deltas: int, error: Exception | None
) -> Callable[[GenerateRequest], AsyncGenerator[Delta]]:
    """A script that raises, or just ends, before its answer is complete."""

    async def script(request: GenerateRequest) -> AsyncGenerator[Delta]:
        deltas = says("one", "two", "three")(request)
        for _ in range(num_deltas):
            yield await anext(deltas)
        if error is not None:
            raise error

    return script


def events(response: httpx.Response) -> list[Any]:
    payloads = [part.removeprefix("data: ") for part in response.text.split("\n\n") if part]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


ERRORS = [
    (InvalidRequest("max_tokens", "can never fit"), 400, "invalid_value"),
    (CapacityExceeded("the queue", 1.5), 503, "capacity_exceeded"),
    (ReplicaLost("killed"), 503, "replica_lost"),
    (EngineDead("stopped"), 503, "engine_dead"),
    (StepFailed("OutOfMemory"), 500, "step_failed"),
    (RuntimeError("the prompt was: hello"), 500, "internal_error"),
]


@pytest.mark.parametrize(("error", "status", "code"), ERRORS)
@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("opens", [False, True])
async def test_before_the_first_delta_a_refusal_has_its_real_status(
    world: GatewayWorld,
    *,
    error: Exception,
    status: int,
    code: str,
    body: dict[str, object],
    opens: bool,
) -> None:
    if opens:
        world.fleet.script = fails_after(0, error)
    else:
        world.fleet.refusal = error

    response = await post(world, body)

    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"]["code"] == code
    assert "the prompt was" not in response.text
    assert [outcome for _, outcome in world.admission.settled] == [Outcome.FAILED]
    assert len(world.fleet.closed) == len(world.fleet.opened)


@pytest.mark.parametrize(("error", "_status", "code"), ERRORS)
async def test_after_the_first_byte_a_failure_is_an_event(
    world: GatewayWorld, error: Exception, _status: int, code: str
) -> None:
    world.fleet.script = fails_after(2, error)

    response = await post(world, STREAM)

    assert response.status_code == 200
    *chunks, last = events(response)
    assert last["error"]["code"] == code
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert [c["choices"][0]["delta"].get("content") for c in chunks] == ["", "one", "two"]
    assert "[DONE]" not in response.text
    ((usage, outcome),) = world.admission.settled
    assert outcome is Outcome.FAILED
    assert usage.output == 2, "what was computed is charged"
    assert len(world.fleet.closed) == 1


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
async def test_a_stream_that_just_ends_is_no_complete_answer(
    world: GatewayWorld, body: dict[str, object]
) -> None:
    world.fleet.script = fails_after(2, None)

    response = await post(world, body)

    assert "replica_lost" in response.text
    assert "[DONE]" not in response.text
    assert [outcome for _, outcome in world.admission.settled] == [Outcome.FAILED]


@pytest.mark.parametrize(("body", "status"), [(BODY, 503), (STREAM, 200)], ids=["whole", "stream"])
async def test_what_the_engine_aborted_is_no_complete_answer(
    world: GatewayWorld, body: dict[str, object], status: int
) -> None:
    world.fleet.script = says("one", "two", finish_reason=FinishReason.ABORT)

    response = await post(world, body)

    assert response.status_code == status
    assert "generation_aborted" in response.text
    assert "[DONE]" not in response.text


async def test_a_rejection_says_when_to_come_back(world: GatewayWorld) -> None:
    world.admission.rejection = Rejected("requests per minute", 1.25)

    response = await post(world, STREAM)

    assert response.status_code == 429
    assert response.headers["retry-after"] == "2"
    assert response.headers["retry-after-ms"] == "1250"
    assert world.fleet.opened == []


async def test_the_demand_is_the_most_that_can_be_used(world: GatewayWorld) -> None:
    await post(world, {**BODY, "n": 3, "max_tokens": 7})

    (demand,) = world.admission.demands
    assert demand.prompt_tokens == len(world.fleet.opened[0].token_ids)
    assert demand.max_output_tokens == 21


async def forever(*_: object) -> Any:
    await asyncio.Event().wait()


async def test_admission_that_never_answers_admits_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GatewayWorld(GatewayLimits(admit_timeout_s=0.01))
    monkeypatch.setattr(world.admission, "admit", forever)

    response = await post(world, BODY)

    assert response.status_code == 504
    assert world.fleet.opened == []


@pytest.mark.parametrize(("num_deltas", "status"), [(0, 504), (1, 200)])
async def test_a_request_has_a_time_limit(num_deltas: int, status: int) -> None:
    world = GatewayWorld(GatewayLimits(max_stream_s=0.05))

    async def stalls(request: GenerateRequest) -> AsyncGenerator[Delta]:
        deltas = says("one", "two")(request)
        for _ in range(num_deltas):
            yield await anext(deltas)
        await asyncio.Event().wait()

    world.fleet.script = stalls
    response = await post(world, STREAM)

    assert response.status_code == status
    assert '"code":"timeout"' in response.text
    assert [outcome for _, outcome in world.admission.settled] == [Outcome.FAILED]
    assert len(world.fleet.closed) == 1


async def test_a_settlement_that_fails_does_not_spoil_the_answer(
    world: GatewayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        async def settle(self, usage: Usage, outcome: Outcome) -> None:
            raise RuntimeError

    real = world.admission.admit

    async def admit(*arguments: Any) -> Any:
        await real(*arguments)
        from tenancy.admission import Admitted

        return Admitted(Broken())

    monkeypatch.setattr(world.admission, "admit", admit)
    with capture_logs() as logs:
        response = await post(world, BODY)

    assert response.status_code == 200
    assert [line["event"] for line in logs] == ["settlement failed", "request"]


async def test_a_bug_is_logged_by_place_not_by_message(world: GatewayWorld) -> None:
    world.fleet.refusal = RuntimeError("the prompt was: hello")
    with capture_logs() as logs:
        response = await post(world, BODY)

    (line,) = logs
    assert line["exception"] == "RuntimeError"
    assert "gateway.py:" in line["raised_at"]
    assert line["log_level"] == "warning"
    assert "the prompt was" not in str(line)
    assert response.headers["x-request-id"] == line["request_id"]
