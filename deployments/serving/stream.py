"""One request in flight on an engine replica: deltas up, the truth about its prefix to the router.

Decides when a stream counts as dead and what its errors mean; refuses to know how the replica was
chosen. Every way out (end, error, close, cancellation) gives the reservation back exactly once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from deployments.gateway.ports import ReplicaLost, RouteInfo
from deployments.serving.ray_types import means_death, translate

if TYPE_CHECKING:
    from collections.abc import Callable

    from cache_router.policy import Ranked
    from deployments.serving.ray_types import DeltaStream
    from deployments.serving.routing_state import RoutingState
    from freehold.errors import FreeholdError
    from freehold.protocol import Delta, GenerateRequest


class EngineStream:
    """``GenerationStream`` over a streaming call. ``start`` it before it is given away."""

    def __init__(
        self,
        deltas: DeltaStream,
        request: GenerateRequest,
        chosen: Ranked,
        state: RoutingState,
        *,
        stall_s: float,
        decision_s: float = 0.0,
        on_end: Callable[[EngineStream], None],
    ) -> None:
        self._deltas = deltas
        self._request = request
        self._route = chosen
        self._state = state
        self._stall_s = stall_s
        self._decision_s = decision_s
        self._on_end = on_end
        self._first: Delta | None = None
        self._started = False
        self._open_choices = set(range(request.sampling.n))
        self._failure: FreeholdError | None = None
        self._ended = False

    @property
    def route(self) -> RouteInfo:
        route = self._route
        return RouteInfo(
            route.replica_id,
            route.hit_tokens,
            route.predicted_ttft_s,
            str(route.reason),
            self._decision_s,
        )

    @property
    def is_stranded(self) -> bool:
        """No replica has answered yet, and none of those that it may go to is left.

        Serve would wait for one of them for ever: a replacement is not in this request's ranking.
        """
        if self._started or self._ended:
            return False
        with self._state.locked() as router:
            return not router.order(self._request.request_id)

    async def start(self) -> None:
        """Wait for the first delta, however long the queue is: the caller has the deadline."""
        delta = self._first = await self._receive()
        self._started = True
        self._follow_route()
        with self._state.locked() as router:
            router.prefilled(self._request.request_id, delta.usage)
        self._settle(delta)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        if self._ended:
            raise StopAsyncIteration
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            async with asyncio.timeout(self._stall_s):
                delta = await self._receive()
        except TimeoutError:
            message = f"no token for {self._stall_s:.0f} s"
            raise ReplicaLost(message) from None
        self._settle(delta)
        return delta

    async def aclose(self) -> None:
        self._end()

    def fail(self, error: FreeholdError) -> None:
        """End it from outside; whoever waits for a delta gets ``error``."""
        self._failure = error
        self._deltas.cancel()

    async def _receive(self) -> Delta:
        try:
            return await anext(self._deltas)
        except StopAsyncIteration:
            self._end(cancel=False)
            raise
        except Exception as error:  # noqa: BLE001  # the replica's own, of any type
            self._follow_route()
            if means_death(error):
                with self._state.locked() as router:
                    router.lose(self._route.replica_id)
            self._end()
            raise self._failure or translate(error) from None
        except BaseException:
            self._end()  # the client left, or a bound was hit: the engine must hear of it
            raise

    def _follow_route(self) -> None:
        """Serve may have sent the request to another replica than the first choice."""
        with self._state.locked() as router:
            self._route = router.route(self._request.request_id) or self._route

    def _settle(self, delta: Delta) -> None:
        """A request that only has its goodbye left is no load any more."""
        if delta.finish_reason is not None:
            self._open_choices.discard(delta.index)
            if not self._open_choices:
                self._release()

    def _end(self, *, cancel: bool = True) -> None:
        if self._ended:
            return
        self._ended = True
        if cancel:
            self._deltas.cancel()
        self._release()
        self._on_end(self)

    def _release(self) -> None:
        with self._state.locked() as router:
            router.finished(self._request.request_id)
