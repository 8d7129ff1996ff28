"""Engine replicas without a model, for tests of everything between a gateway and an engine.

What a request should meet is said in its ``sampling.stop`` (see ``Act``). The answer's text is
the replica's id and its only token is the replica's process id, so that a test knows who
answered and can kill it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from enum import StrEnum
from typing import TYPE_CHECKING

from deployments.serving.ray_types import current_replica_id
from freehold.errors import CapacityExceeded, InvalidRequest
from freehold.kv.keys import KEY_BYTES
from freehold.protocol import (
    DEVICE,
    AccountId,
    BlockKey,
    CacheMode,
    Delta,
    EpochId,
    FinishReason,
    GenerateRequest,
    Incarnation,
    ModelCard,
    Owner,
    ReplicaReport,
    RequestId,
    SamplingParams,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

BLOCK_SIZE = 16
MODEL = "fake"
FINGERPRINT = "fake-v1"
OWNER = Owner(AccountId("tn_test"), EpochId("e0"))


class Act(StrEnum):
    """What the engine does with a request."""

    ANSWER = "answer"
    HOLD = "hold"
    """One delta, then nothing."""
    SILENCE = "silence"
    """Nothing at all."""
    REFUSE = "refuse"
    FULL = "full"
    """Refuse for want of room, except where ``only_at`` says."""
    BUG = "bug"


def keys(chain: str, num_blocks: int) -> tuple[BlockKey, ...]:
    """Stand-ins for a chain's keys: equal for equal arguments, a prefix for a smaller number."""
    names = (f"{chain}/{i}".encode() for i in range(num_blocks))
    return tuple(BlockKey(hashlib.sha256(name).digest()[:KEY_BYTES]) for name in names)


def make_request(
    request_id: str,
    chain: Sequence[BlockKey] = (),
    act: Act = Act.ANSWER,
    *,
    cache: CacheMode = CacheMode.ON,
    only_at: str = "",
    n: int = 1,
) -> GenerateRequest:
    """A prompt of the chain's blocks and one token more."""
    return GenerateRequest(
        request_id=RequestId(request_id),
        model=MODEL,
        fingerprint=FINGERPRINT,
        token_ids=tuple(range(len(chain) * BLOCK_SIZE + 1)),
        block_keys=tuple(chain),
        next_parent=BlockKey(bytes(16)),
        tail=OWNER,
        sampling=SamplingParams(max_tokens=1, n=n, stop=(act, only_at)),
        cache=cache,
    )


def make_card(num_blocks: int = 1000, fingerprint: str = FINGERPRINT) -> ModelCard:
    return ModelCard(
        model=MODEL,
        fingerprint=fingerprint,
        architecture="fake",
        dtype="float32",
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
        max_model_len=4096,
        vocab_size=100,
        eos_token_ids=(0,),
        attention_backend="none",
    )


def make_report(
    incarnation: str,
    *,
    card: ModelCard | None = None,
    free_blocks: int = 1000,
    num_running: int = 0,
    num_waiting: int = 0,
    queued_prefill_tokens: int = 0,
    prefill_tokens_per_s: float = 1000.0,
    decode_step_s: float = 0.02,
    healthy: bool = True,
) -> ReplicaReport:
    return ReplicaReport(
        incarnation=Incarnation(incarnation),
        card=card or make_card(),
        free_blocks=free_blocks,
        active_blocks=0,
        cached_blocks=0,
        num_running=num_running,
        num_waiting=num_waiting,
        queued_prefill_tokens=queued_prefill_tokens,
        prefill_tokens_per_s=prefill_tokens_per_s,
        decode_step_s=decode_step_s,
        prompt_tokens_total=0,
        cached_tokens_total=0,
        computed_prefill_tokens_total=0,
        output_tokens_total=0,
        num_preemptions_total=0,
        num_finished_total=0,
        num_aborted_total=0,
        accounts={},
        healthy=healthy,
    )


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
