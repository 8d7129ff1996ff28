"""The gateway's ``Fleet`` on Ray Serve: every model's engine group behind one door."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deployments.gateway.ports import Readiness, ReplicaLost
from deployments.serving.engine_group import EngineGroup, FleetLimits
from deployments.serving.routing_state import state_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deployments.gateway.ports import GenerationStream, RouteHint
    from deployments.serving.ray_types import EngineClient
    from freehold.protocol import GenerateRequest, ModelCard, ReplicaReport


class ServeFleet:
    """``start`` it inside the event loop that will use it, ``close`` it there."""

    def __init__(
        self, clients: Mapping[str, EngineClient], limits: FleetLimits | None = None
    ) -> None:
        """``clients``: one engine deployment a model, by the model's name."""
        self._groups = {
            model: EngineGroup(model, client, state_of(*client.deployment), limits or FleetLimits())
            for model, client in clients.items()
        }
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to ask the replicas how they do. Idempotent."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(group.run()) for group in self._groups.values()]

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cards(self) -> Sequence[ModelCard]:
        cards = (group.card() for group in self._groups.values())
        return [card for card in cards if card is not None]

    def ready(self) -> Readiness:
        """A replica whose invariant is broken gets no request, so it only counts if it is the last."""
        reasons = [group.why_not_ready() for group in self._groups.values()]
        reasons += ["replicas are not polled" for task in self._tasks if task.done()]
        given = tuple(reason for reason in reasons if reason is not None)
        return Readiness(not given, given)

    def group(self, model: str) -> EngineGroup:
        return self._groups[model]

    def reports(self) -> Mapping[str, Mapping[str, ReplicaReport]]:
        """What every replica said last, by model and replica id."""
        return {model: group.reports() for model, group in self._groups.items()}

    async def open(self, request: GenerateRequest, hint: RouteHint) -> GenerationStream:
        group = self._groups.get(request.model)
        if group is None:
            message = f"no replica serves {request.model}"
            raise ReplicaLost(message)
        return await group.open(request, hint)
