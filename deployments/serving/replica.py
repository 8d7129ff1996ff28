"""The engine replica: one loaded model with its KV pool, behind Serve.

Decides how an engine is put together from its settings and when it counts as healthy; everything
about tokens is the engine's business. Imports neither torch nor the engine before a replica is
made: the gateway and the command line import this module too.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from deployments.serving.logs import configure_logs
from freehold.errors import EngineDead

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deployments.settings import ModelSettings
    from freehold.engine.engine import LocalEngine
    from freehold.protocol import (
        AccountId,
        Delta,
        EpochId,
        GenerateRequest,
        ReplicaReport,
        RequestId,
        Usage,
    )


class EngineReplica:
    """``freehold.protocol.Engine`` for callers in other processes."""

    def __init__(
        self, settings: ModelSettings, num_threads: int, pool_share: float, log_level: str
    ) -> None:
        configure_logs(log_level)
        # Ray forces one OpenMP thread on an actor; the runtime reads this once, at torch's import.
        os.environ["OMP_NUM_THREADS"] = str(num_threads)
        from deployments.serving.engine_builder import build_engine

        self._engine: LocalEngine = build_engine(
            settings, num_threads=num_threads, pool_share=pool_share
        )

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Delta]:
        """Stream the answer. Serve cancels this when the caller leaves, which aborts the request."""
        async for delta in self._engine.generate(request):
            yield delta

    async def report(self) -> ReplicaReport:
        return self._engine.report()

    async def abort(self, request_id: RequestId) -> None:
        self._engine.abort(request_id)

    async def purge(self, account_id: AccountId, keep_epoch_id: EpochId | None) -> int:
        # In a thread: it waits for the step at hand, and the loop carries everybody's streams.
        return await asyncio.to_thread(self._engine.purge, account_id, keep_epoch_id)

    async def final_usage(self, request_id: RequestId) -> Usage | None:
        return self._engine.final_usage(request_id)

    def record_replica_metadata(self) -> dict[str, str]:
        """For routers: a restarted process is another incarnation, whatever its replica's name."""
        return {"incarnation": self._engine.report().incarnation}

    async def check_health(self) -> None:
        """Serve replaces a replica that raises here.

        Raises:
            EngineDead: the step thread has ended or the pool's invariant is broken.
        """
        if not self._engine.report().healthy:
            reason = "step thread dead or blocks lost"
            raise EngineDead(reason)

    async def __del__(self) -> None:
        engine = getattr(self, "_engine", None)  # None: the constructor failed
        if engine is not None:
            await asyncio.to_thread(engine.close)
