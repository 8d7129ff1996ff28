"""The fleet over clients without Ray: what is passed on, what is given back, what ends a stream."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from ray.exceptions import ActorUnavailableError, RayTaskError

from cache_router.replica import OwnWork
from deployments.gateway.ports import ReplicaLost, RouteHint
from deployments.serving.engine_group import EngineGroup, FleetLimits
from deployments.serving.fleet import ServeFleet
from deployments.serving.routing_state import RoutingState, state_of
from freehold.errors import CapacityExceeded, EngineDead, FreeholdError, InvalidRequest
from freehold.protocol import DEVICE, Delta, FinishReason, RequestId, Usage
from tests.support.engine_values import MODEL, keys, make_card, make_report, make_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from freehold.protocol import GenerateRequest, ReplicaReport

HINT = RouteHint()
CHAIN = keys("x", 10)
Script: TypeAlias = "Sequence[Delta | Exception | None]"
"""What a call meets: deltas, then an error, the end, or (None) nothing ever."""


def delta(text: str = "hi", *, last: bool = False, cached: int = 0, index: int = 0) -> Delta:
    reason = FinishReason.STOP if last else None
    return Delta(index, (1,), text, Usage(161, {DEVICE: cached}, 1), finish_reason=reason)


ray_task_error: Any = RayTaskError
"""Its constructor has no types."""
ANSWER: Script = (delta(), delta(last=True))


class FakeStream:
    """A call in flight; cancelling it makes a pending ``anext`` raise, as Serve's does."""

    def __init__(self, script: Script) -> None:
        self._script = deque(script)
        self._cancelled = asyncio.Event()
        self.num_cancelled = 0

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        step = self._script.popleft() if self._script else StopAsyncIteration()
        if step is None:
            await self._cancelled.wait()
            raise RuntimeError("cancelled")  # noqa: EM101
        if isinstance(step, Delta):
            return step
        raise step

    def cancel(self) -> None:
        self.num_cancelled += 1
        self._cancelled.set()


@dataclass
class FakeClient:
    """Two replicas, ``a`` and ``b``; each call takes the next script of the first choice."""

    name: str
    reports: dict[str, ReplicaReport | Exception | None] = field(
        default_factory=lambda: {"a": make_report("a-1"), "b": make_report("b-1")}
    )
    scripts: dict[str, list[Script]] = field(default_factory=lambda: {"a": [], "b": []})
    streams: list[FakeStream] = field(default_factory=list[FakeStream])
    asked: list[str] = field(default_factory=list[str])

    @property
    def deployment(self) -> tuple[str, str]:
        return "test", self.name

    @property
    def state(self) -> RoutingState:
        return state_of(*self.deployment)

    def generate(self, request: GenerateRequest, ticket: str) -> FakeStream:
        order = self.state.order(ticket)
        assert order is not None
        self.asked.append(order[0])
        scripts = self.scripts[order[0]]
        self.streams.append(FakeStream(scripts.pop(0) if scripts else ANSWER))
        return self.streams[-1]

    async def report(self, replica_id: str) -> ReplicaReport:
        answer = self.reports[replica_id]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer


class World:
    """A client, the fleet over it, and what the router knows."""

    def __init__(self, name: str, limits: FleetLimits | None = None) -> None:
        self.client = FakeClient(name)
        self.fleet = ServeFleet({MODEL: self.client}, limits)
        with self.client.state.locked() as router:
            router.set_replicas("ab")
            for replica_id in "ab":
                report = make_report(f"{replica_id}-1")
                router.observe(replica_id, report, sent_at_s=0, own=OwnWork())

    @property
    def num_in_flight(self) -> int:
        with self.client.state.locked() as router:
            return router.num_in_flight

    @property
    def num_requests(self) -> int:
        with self.client.state.locked() as router:
            return sum(router.own_work(replica_id).num_requests for replica_id in "ab")

    def hits(self) -> dict[str, int]:
        with self.client.state.locked() as router:
            return router.hits(CHAIN)

    def everywhere(self, script: Script) -> None:
        for scripts in self.client.scripts.values():
            scripts.append(script)

    async def poll(self) -> bool:
        return await self.fleet.group(MODEL).poll()


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    return World(request.node.nodeid)


async def test_a_stream_ends_with_its_engine_and_gives_everything_back(world: World) -> None:
    stream = await world.fleet.open(make_request("r", CHAIN), HINT)
    assert world.num_requests == 1
    texts = [delta.text async for delta in stream]
    assert texts == ["hi", "hi"]
    assert world.num_in_flight == 0
    assert world.hits() == {world.client.asked[0]: 10}
    await stream.aclose()
    assert world.client.streams[0].num_cancelled == 0


async def test_the_route_says_where_and_why(world: World) -> None:
    first = await world.fleet.open(make_request("r0", CHAIN), HINT)
    await first.aclose()
    route = (await world.fleet.open(make_request("r1", CHAIN), HINT)).route
    assert route.replica_id == world.client.asked[0]
    assert (route.hit_tokens, route.reason) == (160, "prefix_hit")


async def test_closing_early_cancels_once_and_gives_the_reservation_back(world: World) -> None:
    world.everywhere((delta(), None))
    stream = await world.fleet.open(make_request("r"), HINT)
    await stream.aclose()
    await stream.aclose()
    assert world.client.streams[0].num_cancelled == 1
    assert world.num_in_flight == 0
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_cancelling_open_cancels_in_the_engine(world: World) -> None:
    world.everywhere((None,))
    opening = asyncio.create_task(world.fleet.open(make_request("r"), HINT))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    assert opening.cancelled()
    assert world.client.streams[0].num_cancelled == 1
    assert world.num_in_flight == 0


async def test_a_finished_request_is_no_load_even_if_nobody_reads_on(world: World) -> None:
    world.everywhere((delta(last=True), delta(last=True, index=1), None))
    stream = await world.fleet.open(make_request("r", n=2), HINT)
    assert world.num_requests == 1
    await anext(stream)
    await anext(stream)
    assert world.num_requests == 0


async def test_a_full_replica_is_passed_over(world: World) -> None:
    full = CapacityExceeded("the waiting queue", 2.5)
    world.client.scripts["a"].append((full,))
    world.client.scripts["b"].append((full,))
    with pytest.raises(CapacityExceeded) as refused:
        await world.fleet.open(make_request("r"), HINT)
    assert refused.value.retry_after_s == 2.5
    assert sorted(world.client.asked) == ["a", "b"]
    assert world.num_in_flight == 0

    world.client.scripts[world.client.asked[0]].append((full,))
    stream = await world.fleet.open(make_request("r"), HINT)
    assert stream.route.replica_id == world.client.asked[-1]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidRequest("prompt", "no"), InvalidRequest("prompt", "no")),
        (EngineDead("the step thread"), EngineDead("the step thread")),
        (
            ray_task_error("generate", "traceback", InvalidRequest("n", "no")),
            InvalidRequest("n", "no"),
        ),
        (ValueError("a prompt"), EngineDead("unexpected ValueError in the replica")),
        (ActorUnavailableError("gone", None), ReplicaLost("ActorUnavailableError")),
    ],
)
async def test_errors_say_what_happened_and_nothing_is_asked_twice(
    world: World, error: Exception, expected: FreeholdError
) -> None:
    world.everywhere((error,))
    with pytest.raises(type(expected)) as raised:
        await world.fleet.open(make_request("r"), HINT)
    assert raised.value.args == expected.args
    assert len(world.client.asked) == 1
    assert world.num_in_flight == 0


async def test_a_replica_that_dies_in_midstream_is_out_before_the_next_decision(
    world: World,
) -> None:
    world.everywhere((delta(), ActorUnavailableError("gone", None)))
    stream = await world.fleet.open(make_request("r0", CHAIN), HINT)
    await anext(stream)
    (home,) = world.client.asked
    assert world.hits() == {home: 10}
    with pytest.raises(ReplicaLost):
        await anext(stream)
    assert world.hits() == {}
    await world.fleet.open(make_request("r1", CHAIN), HINT)
    assert world.client.asked[1] != home


async def test_an_error_of_one_request_costs_the_replica_nothing(world: World) -> None:
    await (await world.fleet.open(make_request("r0", CHAIN), HINT)).aclose()
    (home,) = world.hits()
    world.everywhere((ValueError("a bug"),))
    with pytest.raises(EngineDead):
        await world.fleet.open(make_request("r1", CHAIN), HINT)
    assert world.hits() == {home: 10}


async def test_an_engine_that_says_nothing_ends_at_the_bound(
    request: pytest.FixtureRequest,
) -> None:
    world = World(request.node.nodeid, FleetLimits(first_delta_s=0, deadline_grace_s=0, stall_s=0))
    world.everywhere((None,))
    with pytest.raises(ReplicaLost):
        await world.fleet.open(make_request("r0"), HINT)
    assert world.client.streams[0].num_cancelled == 1
    assert world.num_in_flight == 0


async def test_a_stream_that_stalls_ends_at_the_bound(request: pytest.FixtureRequest) -> None:
    world = World(request.node.nodeid, FleetLimits(stall_s=0))
    world.everywhere((delta(), None))
    stream = await world.fleet.open(make_request("r1"), HINT)
    await anext(stream)
    with pytest.raises(ReplicaLost):
        await anext(stream)
    assert world.num_in_flight == 0


async def test_streams_of_a_replica_found_dead_by_polling_end_at_once(world: World) -> None:
    world.everywhere((delta(), None))
    stream = await world.fleet.open(make_request("r"), HINT)
    await anext(stream)
    waiting = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    world.client.reports[stream.route.replica_id] = ActorUnavailableError("gone", None)
    await world.poll()
    with pytest.raises(ReplicaLost):
        await waiting
    assert world.num_in_flight == 0


async def test_a_request_that_no_replica_is_left_for_ends(world: World) -> None:
    """Serve itself would wait for ever, see ``EngineStream.is_stranded``."""
    world.everywhere((None,))
    opening = asyncio.create_task(world.fleet.open(make_request("r"), HINT))
    await world.poll()
    assert not opening.done()
    with world.client.state.locked() as router:
        router.set_replicas("c")
    world.client.reports["c"] = make_report("c-1")
    await world.poll()
    with pytest.raises(ReplicaLost):
        await opening
    assert world.num_in_flight == 0


async def test_a_replica_that_answers_no_poll_keeps_its_streams_for_now(
    request: pytest.FixtureRequest,
) -> None:
    world = World(request.node.nodeid, FleetLimits(report_timeout_s=0))
    world.everywhere((delta(), None))
    stream = await world.fleet.open(make_request("r"), HINT)
    world.client.reports = {"a": None, "b": None}
    await world.poll()
    assert (await anext(stream)).text == "hi"
    assert world.client.streams[0].num_cancelled == 0


async def test_polling_knows_when_all_have_reported(world: World) -> None:
    assert await world.poll()
    with world.client.state.locked() as router:
        router.set_replicas("abc")
    world.client.reports["c"] = ValueError("still loading")
    assert not await world.poll()
    world.client.reports["c"] = make_report("c-1")
    assert await world.poll()


async def test_readiness_and_cards_come_from_reports(world: World) -> None:
    assert world.fleet.ready().ready
    assert [card.model for card in world.fleet.cards()] == [MODEL]
    world.client.reports = {r: make_report(f"{r}-1", healthy=False) for r in "ab"}
    await world.poll()
    assert world.fleet.ready().reasons == (f"{MODEL}: no replica is healthy",)
    assert world.fleet.cards() == []
    with world.client.state.locked() as router:
        router.set_replicas(())
    assert world.fleet.ready().reasons == (f"{MODEL}: no replica has reported",)
    with pytest.raises(ReplicaLost):
        await world.fleet.open(make_request("r"), HINT)


async def test_the_card_of_a_rolling_update_is_the_majoritys(world: World) -> None:
    with world.client.state.locked() as router:
        router.set_replicas("abc")
    new = make_card(fingerprint="fake-v2")
    world.client.reports = {
        "a": make_report("a-1"),
        "b": make_report("b-1", card=new),
        "c": make_report("c-1", card=new),
    }
    await world.poll()
    assert [card.fingerprint for card in world.fleet.cards()] == ["fake-v2"]


async def test_starting_and_closing_may_be_repeated(world: World) -> None:
    world.fleet.start()
    world.fleet.start()
    await world.fleet.close()
    await world.fleet.close()
    assert world.fleet.ready().ready


async def test_a_gateway_whose_polling_ended_is_not_ready(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end(_: EngineGroup) -> None: ...

    monkeypatch.setattr(EngineGroup, "run", end)
    world.fleet.start()
    await asyncio.sleep(0)
    assert world.fleet.ready().reasons == ("replicas are not polled",)
    await world.fleet.close()


async def test_unknown_models_are_served_by_nobody() -> None:
    with pytest.raises(ReplicaLost):
        await ServeFleet({}).open(make_request("r"), HINT)


def test_tickets_name_a_replica_or_a_decision(world: World) -> None:
    state = world.client.state
    assert state.order("replica/a") == ["a"]
    assert state.order("unknown") is None
    with state.locked() as router:
        router.decide(make_request("r"))
    assert sorted(state.order(RequestId("r")) or ()) == ["a", "b"]
