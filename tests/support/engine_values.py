"""Requests, reports and keys as they look on the way between a gateway and an engine."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING

from freehold.kv.keys import KEY_BYTES
from freehold.protocol import (
    AccountId,
    BlockKey,
    CacheMode,
    EpochId,
    GenerateRequest,
    Incarnation,
    ModelCard,
    Owner,
    ReplicaReport,
    RequestId,
    SamplingParams,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK_SIZE = 16
MODEL = "fake"
FINGERPRINT = "fake-v1"
OWNER = Owner(AccountId("tn_test"), EpochId("e0"))


class Act(StrEnum):
    """What a fake engine does with a request; said in its ``sampling.stop``."""

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
