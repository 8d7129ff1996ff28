"""What belongs to one HTTP request from its first byte to its log line: ids, time, facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from starlette.types import Scope

    from deployments.gateway.timing import StageTimer
    from freehold.protocol import RequestId

_KEY = "freehold.request"


@dataclass(slots=True)
class RequestContext:
    request_id: RequestId
    """Random, ours: names the request to the engine, the lease and the bill."""
    public_id: str
    """The ``x-request-id`` of the answer; the server's in front, or ``request_id``."""
    timer: StageTimer
    status: int = 0
    """0 until headers were sent."""
    facts: dict[str, object] = field(default_factory=dict[str, object])
    """For the canonical log line. Never a prompt, a key, a salt or an answer."""


def attach_context(scope: Scope, context: RequestContext) -> None:
    scope[_KEY] = context


def context_of(scope: Scope) -> RequestContext:
    return cast("RequestContext", scope[_KEY])
