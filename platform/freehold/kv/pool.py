"""The blocks of one replica: free, active (referenced) or cached (findable, not referenced).

Mechanism only: moves a block between the three states and keeps charges, index, eviction order and
events in step. Decides neither who may allocate nor who is evicted, and knows no sequence.

    free --take--> active --release--> cached if it has a key, else free
    cached --share--> active        cached --evict_from or unpublish--> free
    active --publish--> findable    active --unpublish--> private
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freehold.kv.events import BlockRemoved, BlockStored, EventLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freehold.kv.accounts import Account
    from freehold.kv.events import KVEvent
    from freehold.protocol import BlockKey, EpochId

MAX_EVENTS = 65_536


@dataclass(frozen=True, slots=True)
class Holder:
    """Who is charged for a block, and under which epoch its key is made."""

    account: Account
    epoch_id: EpochId


@dataclass(slots=True, eq=False)
class Block:
    """One block's record. ``holder`` is None while it is free, ``key`` unless it is findable."""

    block_id: int
    ref_count: int = 0
    holder: Holder | None = None
    key: BlockKey | None = None
    parent_key: BlockKey | None = None
    """Of the block in front, findable or not; None at a prompt's beginning."""


class BlockPool:
    """All records. Free ids are reused last in, first out: warm memory first, and reproducible.

    Methods raise ``ValueError`` for a block that is free: a double release must not go unseen.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.blocks = tuple(Block(block_id) for block_id in range(num_blocks))
        self.num_active = 0
        self.num_cached = 0
        self._free = list(reversed(range(num_blocks)))
        self._by_key: dict[BlockKey, Block] = {}
        self._keys_of: dict[Account, dict[BlockKey, None]] = {}
        self._tick = 0
        self._events = EventLog(MAX_EVENTS, self._snapshot)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def findable(self) -> Iterator[Block]:
        return iter(self._by_key.values())

    def findable_of(self, account: Account) -> list[Block]:
        """The account's findable blocks, oldest first; a copy, so that they may be unpublished."""
        return [self._by_key[key] for key in self._keys_of.get(account, ())]

    def lookup(self, key: BlockKey) -> Block | None:
        return self._by_key.get(key)

    def take(self, holder: Holder) -> Block:
        """A free block (there must be one), active with one reference, charged to the holder."""
        block = self.blocks[self._free.pop()]
        block.ref_count = 1
        block.holder = holder
        self.num_active += 1
        holder.account.shift(active=1)
        return block

    def share(self, block: Block) -> None:
        """One more reference on an active or cached block."""
        account = _account(block)
        if block.ref_count == 0:
            self._leave_cached(block, account)
            self.num_active += 1
            account.shift(active=1)
        block.ref_count += 1

    def release(self, block: Block) -> None:
        """One reference less. Of a chain, release the last block first (see ``EvictionOrder``)."""
        account = _account(block)
        if block.ref_count == 0:
            message = f"block {block.block_id} is not referenced"
            raise ValueError(message)
        block.ref_count -= 1
        if block.ref_count:
            return
        self.num_active -= 1
        account.shift(active=-1)
        if block.key is None:
            self._reclaim(block)
            return
        self._tick += 1
        self.num_cached += 1
        account.shift(cached=1)
        account.order.add(block.block_id, block.key, block.parent_key, self._tick)
        self.trim(account)  # its ceiling may have come down while the block was in use

    def publish(self, block: Block, key: BlockKey, parent_key: BlockKey | None) -> None:
        """Make an active, written block findable under a key that nobody has."""
        block.key = key
        block.parent_key = parent_key
        self._by_key[key] = block
        self._keys_of.setdefault(_account(block), {})[key] = None
        self._events.append(self._stored(block, key))

    def unpublish(self, block: Block) -> bool:
        """Make the block unfindable; True if that frees it, False if a sequence still uses it."""
        account = _account(block)
        if block.key is None:
            return False
        is_cached = block.ref_count == 0
        if is_cached:
            self._leave_cached(block, account)
        del self._by_key[block.key]
        del self._keys_of[account][block.key]
        self._events.append(BlockRemoved((block.key,), account.account_id))
        block.key = block.parent_key = None
        if is_cached:
            self._reclaim(block)
        return is_cached

    def evict_from(self, account: Account) -> bool:
        """Free the account's least recently used leaf; False when it has nothing cached."""
        block_id = account.order.peek()
        return block_id is not None and self.unpublish(self.blocks[block_id])

    def trim(self, account: Account) -> None:
        """Evict of the account's own cached blocks what is over its ceiling."""
        while account.num_over_ceiling and self.evict_from(account):
            pass

    def drain_events(self) -> Sequence[KVEvent]:
        return self._events.drain()

    def _leave_cached(self, block: Block, account: Account) -> None:
        if block.key is not None:
            account.order.remove(block.key, block.parent_key)
        self.num_cached -= 1
        account.shift(cached=-1)

    def _reclaim(self, block: Block) -> None:
        block.holder = None
        self._free.append(block.block_id)

    def _stored(self, block: Block, key: BlockKey) -> BlockStored:
        return BlockStored(
            block_hashes=(key,),
            parent_block_hash=block.parent_key,
            block_size=self.block_size,
            account_id=_account(block).account_id,
        )

    def _snapshot(self) -> Iterator[BlockStored]:
        return (self._stored(block, key) for key, block in self._by_key.items())


def _account(block: Block) -> Account:
    if block.holder is None:
        message = f"block {block.block_id} is free"
        raise ValueError(message)
    return block.holder.account
