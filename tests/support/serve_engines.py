"""Engine replicas without a model, for tests of everything between a gateway and an engine.

What a request should meet is said by its ``Act``. The answer's text is the replica's id and its
only token is the replica's process id, so that a test knows who answered and can kill it.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING

from deployments.serving.ray_types import current_replica_id
from freehold.errors import CapacityExceeded, InvalidRequest
from freehold.protocol import DEVICE, CacheMode, Delta, FinishReason, Usage
from tests.support.engine_values import BLOCK_SIZE, Act, make_report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from freehold.protocol import BlockKey, GenerateRequest, ReplicaReport


class FakeEngineReplica:
    """The surface of ``EngineReplica``; its cache is a set of keys that never forgets."""

    def __init__(self) -> None:
        self._incarnation = uuid.uuid4().hex
        self._cached: set[BlockKey] = set()
        self._num_running = 0

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Delta]:
        act, only_at = Act(request.sampling.stop[0]), request.sampling.stop[1]
        if act is Act.REFUSE:
            param, reason = "prompt", "is not to the engine's taste"
            raise InvalidRequest(param, reason)
        if act is Act.FULL and only_at != current_replica_id():
            raise CapacityExceeded("the waiting queue", 2.5)  # noqa: EM101  # a field
        if act is Act.BUG:
            text = "a prompt that must not travel"
            raise ZeroDivisionError(text)
        self._num_running += 1
        try:
            if act is Act.SILENCE:
                await asyncio.Event().wait()
            usage = Usage(len(request.token_ids), {DEVICE: self._take(request)}, 1)
            yield Delta(0, (os.getpid(),), current_replica_id(), usage)
            if act is Act.HOLD:
                await asyncio.Event().wait()
            yield Delta(0, (), "", usage, finish_reason=FinishReason.STOP)
        finally:
            self._num_running -= 1

    async def report(self) -> ReplicaReport:
        return make_report(self._incarnation, num_running=self._num_running)

    def _take(self, request: GenerateRequest) -> int:
        """Cached tokens of the prompt; all of it is cached afterwards."""
        num_cached = 0
        while num_cached < len(request.block_keys):
            if request.block_keys[num_cached] not in self._cached:
                break
            num_cached += 1
        if request.cache is CacheMode.ON:
            self._cached.update(request.block_keys)
        return num_cached * BLOCK_SIZE
