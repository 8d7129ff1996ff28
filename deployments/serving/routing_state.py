"""What one gateway process knows of each engine deployment: one ``CacheRouter`` each, shared.

The fleet decides with it and Serve's router follows. Serve pickles its router class by value, so
state in that class's own module would be a second copy; this module is imported by name and
therefore exists once a process.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cache_router.router import CacheRouter
from deployments.serving.ray_types import PIN
from freehold.protocol import RequestId

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


class RoutingState:
    """A ``CacheRouter`` and the lock around it.

    Serve may run its router on a thread of its own (in throughput mode it does not); whoever
    holds the lock never awaits.
    """

    def __init__(self, router: CacheRouter) -> None:
        self._router = router
        self._lock = threading.Lock()
        self.num_probes = 0
        """Times that Serve asked a replica for its queue length: a round trip before a request."""

    @contextmanager
    def locked(self) -> Generator[CacheRouter]:
        with self._lock:
            yield self._router

    def order(self, ticket: str) -> Sequence[str] | None:
        """The replicas that a ticket may go to, best first; None for a ticket of nobody."""
        if ticket.startswith(PIN):
            return [ticket.removeprefix(PIN)]
        with self.locked() as router:
            return router.order(RequestId(ticket))


_states: dict[tuple[str, str], RoutingState] = {}
_states_lock = threading.Lock()


def state_of(app: str, deployment: str) -> RoutingState:
    """The state of a deployment, made when it is first asked for."""
    with _states_lock:
        state = _states.get((app, deployment))
        if state is None:
            # The choice among equals needs no secrecy; time is monotonic.
            router = CacheRouter(clock=time.monotonic, rng=random.Random())  # noqa: S311
            state = _states[(app, deployment)] = RoutingState(router)
        return state
