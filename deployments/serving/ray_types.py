"""Ray Serve's untyped surface, typed once: what the rest of this package calls instead of Ray.

Knows handles, their options and the errors that come out of them; decides nothing about routing.
Everything that is ``Any`` in Ray ends here.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
from ray import serve
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from deployments.gateway.ports import ReplicaLost
from freehold.errors import CapacityExceeded, EngineDead, FreeholdError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from freehold.protocol import Delta, GenerateRequest, ReplicaReport

RayHandle: TypeAlias = DeploymentHandle[Any]

PIN = "replica/"
"""A ticket that starts so asks for this one replica."""


class DeltaStream(Protocol):
    """A streaming call in flight."""

    def __aiter__(self) -> AsyncIterator[Delta]: ...

    async def __anext__(self) -> Delta: ...

    def cancel(self) -> None:
        """Stop it here and in the replica; a pending ``anext`` raises."""
        ...


class EngineClient(Protocol):
    """The engine deployment of one model, as its gateway calls it."""

    @property
    def deployment(self) -> tuple[str, str]:
        """Application and name: the router of this deployment shares state under it."""
        ...

    def generate(self, request: GenerateRequest, ticket: str) -> DeltaStream:
        """Hand a request over; the router finds its plan under ``ticket``."""
        ...

    async def report(self, replica_id: str) -> ReplicaReport:
        """Ask this very replica; waits for ever if it is frozen or gone."""
        ...


class ServeEngineClient:
    """``EngineClient`` over a deployment handle. Made inside the loop that will use it.

    A ticket travels as Serve's ``session_id``, which reaches the router and nothing else.
    Each call runs in a context of its own: calls of one HTTP request share Serve's internal
    request id otherwise, and while two of them wait for a replica the second is never served.
    So Serve does not cancel them with the HTTP request either: whoever opens a stream closes it.
    """

    def __init__(self, handle: RayHandle) -> None:
        self._handle = handle.options()  # makes the router, so that replicas become known

    @property
    def deployment(self) -> tuple[str, str]:
        return self._handle.app_name, self._handle.deployment_name

    def generate(self, request: GenerateRequest, ticket: str) -> DeltaStream:
        return cast("DeltaStream", self._call("generate", request, ticket=ticket, stream=True))

    async def report(self, replica_id: str) -> ReplicaReport:
        return cast("ReplicaReport", await self._call("report", ticket=PIN + replica_id))

    def _call(self, method: str, *args: object, ticket: str, stream: bool = False) -> Any:
        handle = self._handle.options(
            method_name=method,
            stream=stream,
            session_id=ticket,
            request_serialization="pickle",  # of importable classes only; faster than the default
            response_serialization="pickle",
        )
        return contextvars.Context().run(handle.remote, *args)


def current_replica_id() -> str:
    """Serve's id of the replica that runs this code; the router knows it by the same."""
    return str(serve.get_replica_context().replica_id.unique_id)


def translate(error: Exception) -> FreeholdError:
    """What an exception out of a call means to the gateway.

    Over gRPC the replica's own exceptions arrive as they were, over actors wrapped; either may be
    of any type. Of an unexpected one only the type is kept: its text may quote a prompt.
    """
    cause = cast("Any", error).cause if isinstance(error, RayTaskError) else error
    match cause:
        case FreeholdError():
            return cause
        case BackPressureError():
            return CapacityExceeded("the queue for replicas", 1.0)
        case RayError() | RayServeException() | grpc.RpcError():
            return ReplicaLost(type(cause).__name__)
        case _:
            return EngineDead(f"unexpected {type(cause).__name__} in the replica")


def means_death(error: Exception) -> bool:
    """The replica's process is gone or out of reach, not just this call."""
    return isinstance(error, RayActorError)
