"""What the gateway needs of the fleet of replicas, and nothing of how it is served.

The gateway hands over a finished request (keys made, admitted) and gets a stream and the route
that was taken. Knows no Ray, no handle and no index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from freehold.errors import FreeholdError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freehold.protocol import Delta, GenerateRequest, ModelCard


class ReplicaLost(FreeholdError):
    """The replica died, or was never there; the request may be sent again, to another one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the replica was lost: {self.reason}"


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether traffic may come; ``reasons`` say why not (empty when ready)."""

    ready: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RouteHint:
    """What the client asks of the router. Never widens what a tenant may find."""

    prompt_cache_key: str | None = None
    """Requests with the same key would like the same replica; scoped to the tail's account."""


@dataclass(frozen=True, slots=True)
class RouteInfo:
    """Why this replica: for the log line and the route header of admins."""

    replica_id: str
    hit_tokens: int
    """Prompt tokens that the index expects there; the usage says what was really cached."""
    predicted_ttft_s: float
    reason: str
    decision_s: float = 0.0
    """What choosing took, of all the time that ``open`` did."""


class GenerationStream(Protocol):
    """One running request. Owned by one task; ends after a delta per choice has finished.

    ``anext`` raises what ``Fleet.open`` raises, because a remote engine refuses or dies only once
    it is asked for deltas.
    """

    @property
    def route(self) -> RouteInfo: ...

    def __aiter__(self) -> GenerationStream: ...

    async def __anext__(self) -> Delta: ...

    async def aclose(self) -> None:
        """Abort in the engine unless finished, and give its blocks back. Idempotent."""
        ...


class Fleet(Protocol):
    """All replicas of all models, as one gateway sees them."""

    def cards(self) -> Sequence[ModelCard]:
        """Models served now, one card a model; empty until the first replica is up."""
        ...

    def ready(self) -> Readiness:
        """From local memory: a model is loaded and every pool's invariant holds."""
        ...

    async def open(self, request: GenerateRequest, hint: RouteHint) -> GenerationStream:
        """Choose a replica and hand the request over; no await between choice and hand-over.

        Cancelling it, or closing the stream early, aborts the request in the engine.

        Raises:
            InvalidRequest: the request can never run there.
            CapacityExceeded: every eligible replica's queue is full.
            ReplicaLost: no replica serves the model, or it died on the way.
            EngineDead: the replica lives, its engine does not.
        """
        ...
