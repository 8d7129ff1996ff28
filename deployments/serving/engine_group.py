"""The replicas of one model: decide, hand over, and keep asking each how it does.

Between a decision and the call that follows it nothing is awaited, so no other request decides
on the same knowledge. Refuses to know HTTP, tenants and Ray (``ray_types`` has that).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deployments.gateway.ports import ReplicaLost
from deployments.serving.ray_types import means_death, translate
from deployments.serving.stream import EngineStream
from freehold.errors import CapacityExceeded, FreeholdError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from deployments.gateway.ports import RouteHint
    from deployments.serving.ray_types import EngineClient
    from deployments.serving.routing_state import RoutingState
    from freehold.protocol import GenerateRequest, ModelCard, ReplicaReport


@dataclass(frozen=True, slots=True)
class FleetLimits:
    """Bounds on every wait for a replica; a frozen process answers nothing and closes nothing."""

    first_delta_s: float = 600.0
    """From the hand-over, for a request without a deadline of its own."""
    deadline_grace_s: float = 5.0
    """For the engine to end a request itself at its deadline."""
    stall_s: float = 120.0
    """Between two deltas of a running request."""
    report_every_s: float = 1.0
    report_timeout_s: float = 2.0
    first_report_every_s: float = 0.1
    """While there is no replica, or one that nothing is known of."""


class EngineGroup:
    """Owned by one event loop; ``run`` is its background task."""

    def __init__(
        self,
        model: str,
        client: EngineClient,
        state: RoutingState,
        limits: FleetLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._client = client
        self._state = state
        self._limits = limits
        self._clock = clock
        self._streams: set[EngineStream] = set()

    def card(self) -> ModelCard | None:
        """Of the version that most replicas serve: a rolling update has two for a while."""
        cards = Counter(report.card for report in self.reports().values() if report.healthy)
        return cards.most_common(1)[0][0] if cards else None

    def reports(self) -> Mapping[str, ReplicaReport]:
        """The last report of every replica that is not lost, by replica id."""
        with self._state.locked() as router:
            views = router.views
        return {view.replica_id: view.report for view in views if view.report is not None}

    def why_not_ready(self) -> str | None:
        reports = self.reports()
        if any(report.healthy for report in reports.values()):
            return None
        if reports:
            return f"{self._model}: no replica is healthy"
        return f"{self._model}: no replica has reported"

    async def open(self, request: GenerateRequest, hint: RouteHint) -> EngineStream:
        """A stream whose first delta has come; a full replica is passed over for the next best.

        A lost one is not: whoever sent the request knows better than we do whether it may run
        twice, and one that kills replicas must not be handed from one to the next.
        """
        deadline_s = request.deadline_s
        limits = self._limits
        bound_s = limits.first_delta_s if deadline_s is None else deadline_s
        try:
            async with asyncio.timeout(bound_s + limits.deadline_grace_s):
                return await self._open(request, hint)
        except TimeoutError:
            message = f"no first token for {bound_s:.0f} s"
            raise ReplicaLost(message) from None

    async def run(self) -> None:
        """Poll until cancelled."""
        limits = self._limits
        while True:
            all_known = await self.poll()
            await asyncio.sleep(limits.report_every_s if all_known else limits.first_report_every_s)

    async def poll(self) -> bool:
        """Ask every replica once, all at once; whether there are any, and all have reported."""
        with self._state.locked() as router:
            replica_ids = router.replica_ids
        await asyncio.gather(*(self._poll(replica_id) for replica_id in replica_ids))
        with self._state.locked() as router:
            silent = router.expire()
            views = router.views
        self._fail(silent, ReplicaLost("it does not answer"))
        for stream in [s for s in self._streams if s.is_stranded]:
            stream.fail(ReplicaLost("it died before it took the request"))
        return bool(views) and all(view.report is not None for view in views)

    async def _poll(self, replica_id: str) -> None:
        with self._state.locked() as router:
            own = router.own_work(replica_id)
        sent_at_s = self._clock()
        try:
            async with asyncio.timeout(self._limits.report_timeout_s):
                report = await self._client.report(replica_id)
        except TimeoutError:
            return  # busy or frozen: its silence is counted, see ``expire``
        except Exception as error:  # noqa: BLE001  # the replica's own, of any type
            if means_death(error):
                with self._state.locked() as router:
                    router.lose(replica_id)
                self._fail({replica_id}, translate(error))
            return  # else it lives and has no answer: silence is counted as well
        with self._state.locked() as router:
            router.observe(replica_id, report, sent_at_s=sent_at_s, own=own)

    async def _open(self, request: GenerateRequest, hint: RouteHint) -> EngineStream:
        full: set[str] = set()
        refusal: FreeholdError = ReplicaLost(f"no replica serves {self._model} now")
        while (stream := self._dispatch(request, hint, full)) is not None:
            try:
                await stream.start()
            except CapacityExceeded as error:
                refusal = error
                full.add(stream.route.replica_id)
            except StopAsyncIteration:
                raise ReplicaLost("it ended the stream without a token") from None  # noqa: EM101
            else:
                return stream
        raise refusal

    def _dispatch(
        self, request: GenerateRequest, hint: RouteHint, exclude: Collection[str]
    ) -> EngineStream | None:
        """Decide and call; synchronous on purpose. None when there is nobody left to ask."""
        asked_s = self._clock()
        with self._state.locked() as router:
            ranking = router.decide(request, hint.prompt_cache_key, exclude)
        decision_s = self._clock() - asked_s
        if not ranking:
            return None
        try:
            deltas = self._client.generate(request, ticket=request.request_id)
        except Exception as error:
            with self._state.locked() as router:
                router.finished(request.request_id)
            raise translate(error) from error
        stream = EngineStream(
            deltas,
            request,
            ranking[0],
            self._state,
            stall_s=self._limits.stall_s,
            decision_s=decision_s,
            on_end=self._streams.discard,
        )
        self._streams.add(stream)
        return stream

    def _fail(self, replica_ids: Collection[str], error: FreeholdError) -> None:
        for stream in [s for s in self._streams if s.route.replica_id in replica_ids]:
            stream.fail(error)
