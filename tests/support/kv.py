"""Requests with real keys for tests of the KV cache, and the one line that runs a sequence."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from freehold.kv.keys import Domain, ModelIdentity, Span, block_keys
from freehold.protocol import (
    AccountId,
    AccountPolicy,
    CacheMode,
    EpochId,
    GenerateRequest,
    Owner,
    RequestId,
    SamplingParams,
)
from freehold.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freehold.kv.cache import BlockTable, KVCache

BLOCK_SIZE = 4
MODEL = ModelIdentity("sha256:test-model")


def make_domain(account: str, epoch: str = "e1", *, end_user: str = "") -> Domain:
    """A domain whose salt is a function of its names, as different as a real one."""
    salt = hashlib.sha256(f"{account}/{epoch}/{end_user}".encode()).digest()
    return Domain(Owner(AccountId(account), EpochId(epoch)), Secret(salt))


def make_request(
    token_ids: Sequence[int],
    tail: Domain,
    *,
    spans: Sequence[Span] = (),
    cache: CacheMode = CacheMode.ON,
    policies: Mapping[str, AccountPolicy] | None = None,
) -> GenerateRequest:
    chain = block_keys(token_ids, block_size=BLOCK_SIZE, model=MODEL, tail=tail, spans=spans)
    return GenerateRequest(
        request_id=RequestId("req"),
        model="m",
        fingerprint=MODEL.fingerprint,
        token_ids=tuple(token_ids),
        block_keys=chain.block_keys,
        next_parent=chain.next_parent,
        regions=chain.regions,
        tail=chain.tail,
        sampling=SamplingParams(max_tokens=16),
        policies={AccountId(name): policy for name, policy in (policies or {}).items()},
        cache=cache,
    )


def prefill(cache: KVCache, request: GenerateRequest) -> BlockTable:
    """Open, attach, allocate, publish: what a scheduler does for a prompt that fits."""
    table = cache.open(request)
    cache.attach(table, len(request.token_ids) - 1)
    assert cache.allocate(table, len(request.token_ids))
    cache.publish(table, request.token_ids, len(request.token_ids))
    return table


def fill(cache: KVCache, request: GenerateRequest) -> None:
    """Run the prompt and end: its full blocks stay cached."""
    cache.free(prefill(cache, request))
