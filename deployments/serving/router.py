"""Serve's request router for engine deployments: maps a decision to replicas, decides nothing.

The decision was made in the gateway, right before the call, and waits in ``routing_state`` under
the call's ticket. Serve pickles this class by value: nothing of this module may hold state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from deployments.serving import routing_state
from freehold.protocol import RequestId

if TYPE_CHECKING:
    from deployments.serving.routing_state import RoutingState


class EngineRouter(RequestRouter):
    """Groups of one: inside a group Serve would choose by queue length."""

    def _state(self) -> RoutingState:
        deployment = self._deployment_id
        return routing_state.state_of(deployment.app_name, deployment.name)

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        if pending_request is None:
            return [candidate_replicas]
        # Serve asks again when nobody took the request; without this it asks in a busy loop.
        pending_request.routing_context.should_backoff = True
        order = self._state().order(pending_request.metadata.session_id)
        if order is None:
            return [candidate_replicas]
        by_id = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        return [[by_id[replica_id]] for replica_id in order if replica_id in by_id]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: object
    ) -> None:
        with self._state().locked() as router:
            router.moved(RequestId(pending_request.metadata.session_id), replica_id.unique_id)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        with self._state().locked() as router:
            router.set_replicas(replica.replica_id.unique_id for replica in replicas)
        super().update_replicas(replicas)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        with self._state().locked() as router:
            router.lose(replica_id.unique_id)
        super().on_replica_actor_died(replica_id)

    def on_replica_actor_unavailable(self, replica_id: ReplicaID) -> None:
        with self._state().locked() as router:
            router.lose(replica_id.unique_id)
        super().on_replica_actor_unavailable(replica_id)

    async def _probe_queue_lens(self, replicas: list[RunningReplica], backoff_index: int) -> Any:
        """Counted, because each probe is a round trip that a request may wait for."""
        self._state().num_probes += len(replicas)
        return await super()._probe_queue_lens(replicas, backoff_index)
