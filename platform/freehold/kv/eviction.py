"""In which order one account's cached blocks are evicted: least recently used leaf first.

A leaf has no cached child in the same account. Knows keys and ticks, neither floors nor records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freehold.kv.lazy_heap import LazyHeap

if TYPE_CHECKING:
    from freehold.protocol import BlockKey


class EvictionOrder:
    """The cached blocks of one account.

    Children are counted by their parent's key, whether the parent is here or not: they outlive it,
    and count again when its key comes back in another block. Active children do not count: the copy
    of the parent in front of one may be another block, and this one would never be evictable.
    """

    __slots__ = ("_cached", "_leaves", "_num_children")

    def __init__(self) -> None:
        self._cached: dict[BlockKey, tuple[int, int]] = {}
        self._num_children: dict[BlockKey, int] = {}
        self._leaves = LazyHeap()

    def __len__(self) -> int:
        return len(self._cached)

    def add(self, block_id: int, key: BlockKey, parent_key: BlockKey | None, tick: int) -> None:
        """A block became cached; cheapest when a chain's last block comes first."""
        self._cached[key] = (block_id, tick)
        if key not in self._num_children:
            self._leaves.set(block_id, tick)
        if parent_key is None:
            return
        self._num_children[parent_key] = self._num_children.get(parent_key, 0) + 1
        parent = self._cached.get(parent_key)
        if parent is not None:
            self._leaves.discard(parent[0])

    def remove(self, key: BlockKey, parent_key: BlockKey | None) -> None:
        """A block is not cached any more: in use again, or evicted."""
        block_id, _ = self._cached.pop(key)
        self._leaves.discard(block_id)
        if parent_key is None:
            return
        self._num_children[parent_key] -= 1
        if self._num_children[parent_key]:
            return
        del self._num_children[parent_key]
        parent = self._cached.get(parent_key)
        if parent is not None:
            self._leaves.set(*parent)

    def peek(self) -> int | None:
        """The block to evict next; None when nothing is cached."""
        return self._leaves.peek()
