"""One sequence's block table: its blocks in order, the key of each, and whose each is.

Decides how the key chain goes on during decode and which account pays for a block. Knows neither
the pool nor what is findable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freehold.kv.keys import extend
from freehold.protocol import CacheMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freehold.kv.pool import Holder
    from freehold.protocol import BlockKey


@dataclass(frozen=True, slots=True)
class Origin:
    """What a table takes from its request; all forks of the request share it."""

    prompt_keys: tuple[BlockKey, ...]
    next_parent: BlockKey
    regions: tuple[tuple[int, Holder], ...]
    """(end block, holder), by end block."""
    tail: Holder
    mode: CacheMode

    def owner(self, index: int) -> Holder:
        """Whose key block ``index`` has."""
        return next((holder for end, holder in self.regions if index < end), self.tail)

    def is_purged(self, index: int) -> bool:
        """A domain in the chain down to block ``index`` was purged, so nobody can find the block."""
        for end, holder in self.regions:
            if holder.account.is_purged(holder.epoch_id):
                return True
            if index < end:
                return False
        return self.tail.account.is_purged(self.tail.epoch_id)

    def payer(self, index: int) -> Holder:
        """Who is charged for a new block ``index``; for one that stays keyless it is the tail."""
        return self.owner(index) if self.mode is CacheMode.ON else self.tail


@dataclass(slots=True, eq=False)
class BlockTable:
    """The blocks that one sequence holds a reference on, in order of position.

    Made by ``KVCache.open`` or ``fork``; given back by ``KVCache.free``, after which it is empty
    and may be attached again (a preempted sequence). ``block_ids`` may be read by anyone; only the
    cache changes it. The other fields are the cache's own.
    """

    origin: Origin = field(repr=False)
    keys: list[BlockKey] = field(repr=False)
    """Of the leading full blocks: the prompt's, then those made during decode."""
    block_ids: list[int] = field(default_factory=list[int])
    num_settled: int = 0
    """Leading blocks that need no publishing: found, published, or known to stay private."""

    def key(self, index: int, token_ids: Sequence[int], block_size: int) -> BlockKey:
        """The key of full block ``index``; extends the chain as far as that takes."""
        while len(self.keys) <= index:
            is_first = len(self.keys) == len(self.origin.prompt_keys)
            parent = self.origin.next_parent if is_first else self.keys[-1]
            start = len(self.keys) * block_size
            self.keys.append(extend(parent, token_ids[start : start + block_size]))
        return self.keys[index]

    def forget_keys(self, num_full: int) -> None:
        """The tokens behind so many full blocks may change; the prompt's never do."""
        del self.keys[max(num_full, len(self.origin.prompt_keys)) :]

    def fork(self, num_shared: int) -> BlockTable:
        """A table of the first blocks; the caller takes the references."""
        child = BlockTable(self.origin, list(self.keys), self.block_ids[:num_shared])
        child.num_settled = min(self.num_settled, num_shared)
        child.forget_keys(num_shared)
        return child

    def missing(self, num_blocks: int) -> list[Holder]:
        """Who pays for each block that the table lacks to have so many."""
        return [self.origin.payer(index) for index in range(len(self.block_ids), num_blocks)]
