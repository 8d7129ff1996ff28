"""The KV cache as the scheduler sees it: block tables that grow, share, publish and shrink.

Decides which blocks a sequence holds and when they become findable. Knows no tensor: a slot is a
number (``block_id * block_size + offset``), its contents are the model runner's business.
"""
# SKELETON: signatures are the contract with the scheduler; bodies are being written.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freehold.protocol import (
        AccountId,
        AccountPolicy,
        AccountUsage,
        EpochId,
        GenerateRequest,
    )


@dataclass(slots=True, eq=False)
class BlockTable:
    """The blocks that one sequence holds a reference on, in order of position.

    Made by ``KVCache.open`` or ``fork``; given back by ``KVCache.free``. ``block_ids`` may be read
    by anyone; only the cache changes it.
    """

    block_ids: list[int] = field(default_factory=list[int])
    # + private fields: key chain, regions, tail, cache mode, number of published blocks


class KVCache:
    """Mechanism only; who is evicted is decided by the accounts.

    Invariant: free + active + cached = total; a block is findable only after ``publish``.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None: ...

    def open(self, request: GenerateRequest) -> BlockTable:
        """An empty table with the request's keys, owners and cache mode; learns its policies."""
        raise NotImplementedError

    def attach(self, table: BlockTable, max_tokens: int) -> int:
        """Take references on the longest findable prefix of an empty table.

        Returns the number of cached tokens: a multiple of the block size, at most ``max_tokens``
        (pass prompt length - 1: at least one token must be computed to have logits). 0 when the
        cache mode is off.
        """
        raise NotImplementedError

    def allocate(self, table: BlockTable, num_tokens: int) -> bool:
        """Make the table cover positions ``[0, num_tokens)``; all or nothing, False when short.

        May evict cached blocks (never ones that a sequence references).
        """
        raise NotImplementedError

    def publish(self, table: BlockTable, token_ids: Sequence[int], num_computed: int) -> None:
        """Make the full blocks in ``[0, num_computed)`` findable: their contents are written.

        ``token_ids`` are all tokens of the sequence (keys of decoded blocks are made from them).
        Idempotent; does nothing for cache modes ``off`` and ``no-store``, and stops for an epoch
        that was purged. If another block already has the key, this one stays private.
        """
        raise NotImplementedError

    def truncate(self, table: BlockTable, num_tokens: int) -> None:
        """Give back the blocks behind position ``num_tokens`` (rolled back slots)."""
        raise NotImplementedError

    def fork(self, table: BlockTable, num_tokens: int) -> BlockTable:
        """A table that shares the full blocks in ``[0, num_tokens)``.

        The partial block is not shared (a block has one writer): the child computes it again.
        Works in every cache mode: sharing inside one request is no lookup.
        """
        raise NotImplementedError

    def free(self, table: BlockTable) -> None:
        """Drop every reference; findable blocks stay cached, others become free. Idempotent."""
        raise NotImplementedError

    def purge(self, account_id: AccountId, keep_epoch_id: EpochId | None) -> int:
        """Unpublish the account's blocks of other epochs; returns how many became free now."""
        raise NotImplementedError

    def set_policy(self, account_id: AccountId, policy: AccountPolicy) -> None:
        """Adopt the policy if its version is newer than the known one."""
        raise NotImplementedError

    def fits(self, request: GenerateRequest, num_tokens: int) -> bool:
        """Whether so many tokens could ever be held (pool and the tail account's ceiling)."""
        raise NotImplementedError

    @property
    def num_free(self) -> int:
        raise NotImplementedError

    @property
    def num_active(self) -> int:
        raise NotImplementedError

    @property
    def num_cached(self) -> int:
        raise NotImplementedError

    @property
    def usage_by_account(self) -> Mapping[AccountId, AccountUsage]:
        raise NotImplementedError

    def drain_events(self) -> Sequence[object]:
        """Block events since the last call, in order: ``BlockStored``, ``BlockRemoved``.

        Every path that makes a block findable or not findable emits one (the router's index is
        built from them once the event channel exists).
        """
        raise NotImplementedError

    def check(self) -> bool:
        """The conservation invariant holds (cheap: counters, O(1))."""
        raise NotImplementedError
