"""Runs a gateway's fleet on Ray Serve with engines without a model, and prints what it saw.

A script of its own because Ray reads its environment at import and keeps its token for the life
of a process; ``test_ray_contract`` starts it and asserts on the JSON that it prints.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from cache_router.policy import Reason
from deployments.gateway.ports import ReplicaLost, RouteHint
from deployments.serving.engine_group import FleetLimits
from deployments.serving.fleet import ServeFleet
from deployments.serving.ray_types import PIN, ServeEngineClient
from deployments.serving.routing_state import state_of
from deployments.serving.tcp_ports import LOOPBACK, free_ports
from freehold.errors import FreeholdError
from tests.support.engine_values import MODEL, Act, keys, make_request
from tests.support.eventually import eventually
from tests.support.serve_engines import FakeEngineReplica

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from deployments.gateway.ports import GenerationStream, RouteInfo
    from deployments.serving.ray_types import RayHandle
    from freehold.protocol import BlockKey, Delta, ReplicaReport

NUM_REPLICAS = 2
MAX_ONGOING = 8
BOUND_S = 30.0
"""On each wait below: reached only if something hangs, and then the probe fails."""
HINT = RouteHint()


class Prober:
    """In the place of the gateway: the ingress of the application, called through its handle."""

    def __init__(self, engines: RayHandle) -> None:
        self._engines = engines
        self._num_requests = 0
        self._started = False

    async def run(self, name: str) -> dict[str, Any]:
        if not self._started:
            self._started = True
            self._client = ServeEngineClient(self._engines)
            self._state = state_of(*self._client.deployment)
            self._fleet = ServeFleet({MODEL: self._client}, FleetLimits(report_every_s=0.2))
            self._fleet.start()
        async with asyncio.timeout(BOUND_S):
            await eventually(lambda: len(self._reports()) == NUM_REPLICAS)
            probe: Callable[[], Awaitable[dict[str, Any]]] = getattr(self, name)
            return await probe()

    async def reports_reach_the_replica_that_was_asked(self) -> dict[str, Any]:
        reports = self._reports()
        again = {r: (await self._client.report(r)).incarnation for r in reports for _ in range(5)}
        return {
            "ready": self._fleet.ready().ready,
            "cards": [card.model for card in self._fleet.cards()],
            "num_replicas": len(reports),
            "incarnations_differ": len({r.incarnation for r in reports.values()}) == NUM_REPLICAS,
            "each_answered_for_itself": again == {i: r.incarnation for i, r in reports.items()},
        }

    async def requests_follow_their_prefix(self) -> dict[str, Any]:
        """Several chains, each sent many times, all at once: every call meets its own plan."""
        homes: dict[str, str] = {}
        for chain in ("one", "two", "three", "four"):
            _, deltas = await self._ask(keys(chain, 10))
            homes[chain] = deltas[0].text
        probes_before = self._state.num_probes

        async def again(chain: str) -> bool:
            route, deltas = await self._ask(keys(chain, 10))
            return (
                route.reason == Reason.PREFIX_HIT
                and route.replica_id == homes[chain] == deltas[0].text
                and deltas[0].usage.cached == route.hit_tokens == 160
            )

        results: list[bool] = []
        for _ in range(5):
            results += await asyncio.gather(*(again(chain) for chain in homes))
        return {
            "homes": len(set(homes.values())),
            "followed": all(results),
            "probes_for_20_requests": self._state.num_probes - probes_before,
            "num_in_flight": self._num_in_flight(),
        }

    async def other_tenants_keys_meet_nothing(self) -> dict[str, Any]:
        await self._ask(keys("tenant-a", 10))
        same, _ = await self._ask(keys("tenant-a", 10))
        other, deltas = await self._ask(keys("tenant-b", 10))
        return {
            "same": same.hit_tokens,
            "other": other.hit_tokens,
            "cached": deltas[0].usage.cached,
        }

    async def errors_keep_their_fields(self) -> dict[str, Any]:
        return {act: await self._failure(act) for act in (Act.REFUSE, Act.BUG)}

    async def a_full_engine_is_passed_over(self) -> dict[str, Any]:
        chain = keys("full", 10)
        _, deltas = await self._ask(chain)
        home = deltas[0].text
        (other,) = (replica_id for replica_id in self._reports() if replica_id != home)
        route, deltas = await self._ask(chain, Act.FULL, only_at=other)
        return {
            "passed_on": route.replica_id == other == deltas[0].text,
            "nobody": await self._failure(Act.FULL),
            "num_in_flight": self._num_in_flight(),
        }

    async def a_route_follows_serve_to_another_replica(self) -> dict[str, Any]:
        """Fill one replica up to what Serve allows it; its next request goes to the other one."""
        chain = keys("busy", 2000)
        _, deltas = await self._ask(chain)
        home = deltas[0].text
        streams = [await self._open(chain, Act.HOLD) for _ in range(MAX_ONGOING + 1)]
        answered_by = [(await anext(stream)).text for stream in streams]
        routes = [stream.route.replica_id for stream in streams]
        with self._state.locked() as router:
            moved = router.stats.num_moved
        for stream in streams:
            await stream.aclose()
        await eventually(lambda: self._num_running() == 0)
        return {
            "routes_are_true": routes == answered_by,
            "all_but_the_last_at_home": all(route == home for route in routes[:-1])
            and routes[-1] != home,
            "moved": moved,
        }

    async def closing_reaches_the_engine(self) -> dict[str, Any]:
        stream = await self._open((), Act.HOLD)
        await anext(stream)
        await eventually(lambda: self._num_running() == 1)
        await stream.aclose()
        await stream.aclose()
        await eventually(lambda: self._num_running() == 0)

        opening = asyncio.create_task(self._open((), Act.SILENCE))
        await eventually(lambda: self._num_running() == 1)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await eventually(lambda: self._num_running() == 0)
        return {
            "opening_was_cancelled": opening.cancelled(),
            "num_in_flight": self._num_in_flight(),
        }

    async def a_killed_replica_ends_its_stream(self) -> dict[str, Any]:
        chain = keys("doomed", 10)
        stream = await self._open(chain, Act.HOLD)
        delta = await anext(stream)
        doomed, pid = stream.route.replica_id, delta.token_ids[0]
        with self._state.locked() as router:
            hits_before = router.hits(chain)
        os.kill(pid, signal.SIGKILL)
        try:
            await anext(stream)
            ended = "no error"
        except ReplicaLost:
            ended = "ReplicaLost"
        with self._state.locked() as router:
            hits_after = router.hits(chain)
        route, deltas = await self._ask(chain)
        await eventually(lambda: len(self._reports()) == NUM_REPLICAS)
        return {
            "ended": ended,
            "index_knew_it": doomed in hits_before,
            "index_dropped_it": doomed not in hits_after,
            "next_went_elsewhere": doomed not in (route.replica_id, deltas[0].text),
            "replaced": doomed not in self._reports(),
            "num_in_flight": self._num_in_flight(),
        }

    async def a_fleet_killed_whole_refuses_and_recovers(self) -> dict[str, Any]:
        """Nobody knows yet that they are dead: Serve finds out while it hands the request over."""
        dead = set(self._reports())
        pids: list[int] = []
        for replica_id in dead:
            call = self._client.generate(make_request(f"pid of {replica_id}"), PIN + replica_id)
            pids += [pid async for delta in call for pid in delta.token_ids]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        refusal = await self._failure(Act.ANSWER)
        await eventually(lambda: len(self._reports()) == NUM_REPLICAS)
        _, deltas = await self._ask(())
        return {
            "num_killed": len(pids),
            "refusal": refusal[0],
            "recovered": deltas[0].text not in dead,
            "num_in_flight": self._num_in_flight(),
        }

    async def a_frozen_replica_ends_its_streams(self) -> dict[str, Any]:
        """Nothing answers and nothing is closed: only our own bounds end it."""
        fleet = ServeFleet({MODEL: self._client}, FleetLimits(stall_s=1.0))
        stream = await fleet.open(make_request("frozen", keys("frozen", 10), Act.HOLD), HINT)
        delta = await anext(stream)
        os.kill(delta.token_ids[0], signal.SIGSTOP)
        try:
            await anext(stream)
            ended = "no error"
        except ReplicaLost:
            ended = "ReplicaLost"
        finally:
            os.kill(delta.token_ids[0], signal.SIGCONT)
        return {"ended": ended, "num_in_flight": self._num_in_flight()}

    async def _open(
        self, chain: tuple[BlockKey, ...], act: Act = Act.ANSWER, only_at: str = ""
    ) -> GenerationStream:
        self._num_requests += 1
        request = make_request(f"r{self._num_requests}", chain, act, only_at=only_at)
        return await self._fleet.open(request, HINT)

    async def _ask(
        self, chain: tuple[BlockKey, ...], act: Act = Act.ANSWER, only_at: str = ""
    ) -> tuple[RouteInfo, list[Delta]]:
        stream = await self._open(chain, act, only_at)
        return stream.route, [delta async for delta in stream]

    async def _failure(self, act: Act, chain: tuple[BlockKey, ...] = ()) -> list[str]:
        try:
            await self._open(chain, act)
        except FreeholdError as error:
            return [type(error).__name__, *map(str, error.args)]
        return ["no error"]

    def _reports(self) -> Mapping[str, ReplicaReport]:
        return self._fleet.reports().get(MODEL, {})

    def _num_running(self) -> int:
        return sum(report.num_running for report in self._reports().values())

    def _num_in_flight(self) -> int:
        with self._state.locked() as router:
            return router.num_in_flight


def main() -> None:
    cluster: Any = ray
    service: Any = serve
    router: Any = "deployments.serving.router:EngineRouter"
    cluster.init(
        num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.2", log_to_driver=False
    )
    (port,) = free_ports(1)  # nobody calls it, but serve.run starts a proxy all the same
    service.start(http_options={"host": LOOPBACK, "port": port})
    engines = service.deployment(FakeEngineReplica).options(
        name="engine",
        num_replicas=NUM_REPLICAS,
        max_ongoing_requests=MAX_ONGOING,
        request_router_config=RequestRouterConfig(request_router_class=router),
        health_check_period_s=1.0,
    )
    handle = service.run(service.deployment(Prober).bind(engines.bind()))
    handle._init(_run_router_in_separate_loop=True)  # this process has no event loop
    for name in sys.argv[1:]:
        result = handle.run.remote(name).result(timeout_s=2 * BOUND_S)
        sys.stdout.write(json.dumps({"probe": name, "saw": result}) + "\n")
    cluster.shutdown()  # without a farewell to Serve: nothing here is worth a drain


if __name__ == "__main__":
    main()
