"""The KV cache as the scheduler sees it: block tables that grow, share, publish and shrink.

Decides which blocks a sequence holds and when they become findable. Knows no tensor: a slot is a
number (``block_id * block_size + offset``), its contents are the model runner's business.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from freehold.kv.accounts import Accounts, Shortfall
from freehold.kv.pool import BlockPool, Holder
from freehold.kv.table import BlockTable, Origin
from freehold.protocol import AccountUsage, CacheMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freehold.kv.accounts import Account
    from freehold.kv.events import KVEvent
    from freehold.kv.pool import Block
    from freehold.protocol import AccountId, AccountPolicy, EpochId, GenerateRequest

__all__ = ["BlockTable", "KVCache", "Shortfall"]


class KVCache:
    """Mechanism only; who is evicted is decided by the accounts.

    Invariant: free + active + cached = total; a block is findable only after ``publish``. Not
    thread-safe: the engine's step thread owns it.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, block_size)
        self.accounts = Accounts()

    def open(self, request: GenerateRequest) -> BlockTable:
        """An empty table with the request's keys, owners and cache mode; learns its policies.

        Open at arrival, not at the first step: a purge stops the insertions of open tables.
        """
        for account_id, policy in request.policies.items():
            self.set_policy(account_id, policy)
        regions = ((r.end_block, self._holder(r.account_id, r.epoch_id)) for r in request.regions)
        origin = Origin(
            prompt_keys=request.block_keys,
            next_parent=request.next_parent,
            regions=tuple(regions),
            tail=self._holder(request.tail.account_id, request.tail.epoch_id),
            mode=request.cache,
        )
        return BlockTable(origin, list(request.block_keys))

    def attach(self, table: BlockTable, max_tokens: int) -> int:
        """Take references on the longest findable prefix of an empty table.

        Returns the number of cached tokens: a multiple of the block size, at most ``max_tokens``
        (pass prompt length - 1: at least one token must be computed to have logits). 0 when the
        cache mode is off. After a preemption, decoded blocks are found as well.

        Raises:
            ValueError: the table holds blocks.
        """
        if table.block_ids:
            message = "only an empty table can be attached"
            raise ValueError(message)
        if table.origin.mode is CacheMode.OFF:
            return 0
        for index, key in enumerate(table.keys[: max(0, max_tokens) // self.block_size]):
            block = self.pool.lookup(key)
            # The key alone proves the owner; a gateway that mislabels one gets a miss.
            if block is None or block.holder != table.origin.owner(index):
                break
            self.pool.share(block)
            table.block_ids.append(block.block_id)
        table.num_settled = len(table.block_ids)
        return table.num_settled * self.block_size

    def allocate(self, table: BlockTable, num_tokens: int) -> bool:
        """Make the table cover positions ``[0, num_tokens)``; all or nothing, False when short.

        May evict cached blocks (never ones that a sequence references).
        """
        payers = table.missing(self._num_blocks(num_tokens))
        if not payers:
            return True
        tail = table.origin.tail.account
        needs = _count(payers, tail)
        self.accounts.claim(needs, tail)
        try:
            if self.accounts.shortfall(needs, self.pool.num_free):
                return False
            self._make_room(needs)
        finally:
            self.accounts.settle(needs)
        table.block_ids += [self.pool.take(payer).block_id for payer in payers]
        return True

    def shortfall(self, table: BlockTable, num_tokens: int) -> Shortfall | None:
        """What ``allocate`` with these arguments lacks; None when it would succeed."""
        tail = table.origin.tail.account
        needs = _count(table.missing(self._num_blocks(num_tokens)), tail)
        self.accounts.claim(needs, tail)
        try:
            return self.accounts.shortfall(needs, self.pool.num_free)
        finally:
            self.accounts.settle(needs)

    def publish(self, table: BlockTable, token_ids: Sequence[int], num_computed: int) -> None:
        """Make the full blocks in ``[0, num_computed)`` findable: their contents are written.

        ``token_ids`` are all tokens of the sequence (keys of decoded blocks are made from them).
        Idempotent; does nothing for cache modes ``off`` and ``no-store``, and stops at a domain
        that was purged. If another block already has the key, this one stays private.

        Raises:
            ValueError: more is said to be computed than the table covers or the tokens reach.
        """
        if num_computed > min(len(token_ids), len(table.block_ids) * self.block_size):
            message = f"{num_computed} computed tokens exceed the table or the sequence"
            raise ValueError(message)
        if table.origin.mode is not CacheMode.ON:
            return
        for index in range(table.num_settled, num_computed // self.block_size):
            if table.origin.is_purged(index):
                return
            key = table.key(index, token_ids, self.block_size)
            block = self._block(table, index)
            if block.key is None and self.pool.lookup(key) is None:
                self.pool.publish(block, key, table.keys[index - 1] if index else None)
            table.num_settled = index + 1

    def truncate(self, table: BlockTable, num_tokens: int) -> int:
        """Give back the blocks behind position ``num_tokens`` (rolled back slots).

        Returns how many leading tokens keep their contents: ``num_tokens``, or the start of its
        block when others hold that block too (it has one writer, so it is given back and computed
        again). A block that is cut and held by nobody else stops being findable.
        """
        num_tokens = min(num_tokens, len(table.block_ids) * self.block_size)
        num_full, num_left = divmod(num_tokens, self.block_size)
        self._shrink(table, num_full + bool(num_left))
        table.forget_keys(num_full)
        table.num_settled = min(table.num_settled, num_full)
        if not num_left:
            return num_tokens
        cut = self._block(table, num_full)
        if cut.ref_count > 1:
            self._shrink(table, num_full)
            return num_full * self.block_size
        if cut.key is not None:
            self.pool.unpublish(cut)
        return num_tokens

    def fork(self, table: BlockTable, num_tokens: int) -> BlockTable:
        """A table that shares the full blocks in ``[0, num_tokens)``.

        The partial block is not shared (a block has one writer): the child computes it again.
        Works in every cache mode: sharing inside one request is no lookup.

        Raises:
            ValueError: the table does not cover so many tokens.
        """
        num_shared = num_tokens // self.block_size
        if num_shared > len(table.block_ids):
            message = f"the table does not cover {num_tokens} tokens"
            raise ValueError(message)
        child = table.fork(num_shared)
        for block_id in child.block_ids:
            self.pool.share(self.pool.blocks[block_id])
        return child

    def free(self, table: BlockTable) -> None:
        """Drop every reference; findable blocks stay cached, others become free. Idempotent."""
        self._shrink(table, 0)
        table.num_settled = 0

    def purge(self, account_id: AccountId, keep_epoch_id: EpochId | None) -> int:
        """Unpublish the account's blocks of other epochs; returns how many became free now.

        Open tables of those epochs keep their blocks and insert nothing any more.
        """
        account = self.accounts[account_id]
        account.retire(keep_epoch_id)
        blocks = self.pool.findable_of(account)
        doomed = [b for b in blocks if b.holder and b.holder.epoch_id != keep_epoch_id]
        return sum([self.pool.unpublish(block) for block in doomed])

    def set_policy(self, account_id: AccountId, policy: AccountPolicy) -> None:
        """Adopt the policy if its version is newer than the known one.

        A lower ceiling holds at once for cached blocks, for running ones when they are released.
        """
        if self.accounts.adopt(account_id, policy):
            self.pool.trim(self.accounts[account_id])

    def fits(self, request: GenerateRequest, num_tokens: int) -> bool:
        """Whether so many tokens could be held whatever others keep within their floors.

        Counts the pool, the ceilings and every other known account's floor: who is let in can
        always finish alone.
        """
        if self._num_blocks(num_tokens) > len(self.pool.blocks):
            return False
        table = self.open(request)
        tail = table.origin.tail.account
        needs = _count(table.missing(self._num_blocks(num_tokens)), tail)
        return self.accounts.fits(needs, tail, len(self.pool.blocks))

    @property
    def num_free(self) -> int:
        return self.pool.num_free

    @property
    def num_active(self) -> int:
        return self.pool.num_active

    @property
    def num_cached(self) -> int:
        return self.pool.num_cached

    @property
    def usage_by_account(self) -> Mapping[AccountId, AccountUsage]:
        """Of the accounts that hold anything."""
        return {
            account.account_id: AccountUsage(account.num_active, account.num_cached)
            for account in self.accounts
            if account.num_held
        }

    def drain_events(self) -> Sequence[KVEvent]:
        """Block events since the last call, in order: ``BlockStored``, ``BlockRemoved``.

        Every path that makes a block findable or not findable emits one (the router's index is
        built from them once the event channel exists). After too many in between,
        ``AllBlocksCleared`` comes first, and then all that is findable.
        """
        return self.pool.drain_events()

    def check(self) -> bool:
        """The conservation invariant holds (cheap: counters, O(1))."""
        total = self.num_free + self.num_active + self.num_cached
        return total == len(self.pool.blocks)

    def _holder(self, account_id: AccountId, epoch_id: EpochId) -> Holder:
        account = self.accounts[account_id]
        account.see(epoch_id)
        return Holder(account, epoch_id)

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _make_room(self, needs: Mapping[Account, int]) -> None:
        """Evict until the claimed blocks are free; there is no shortfall, so this succeeds."""
        for account in needs:
            self.pool.trim(account)
        num_needed = sum(needs.values())
        while self.pool.num_free < num_needed:
            victim = self.accounts.most_over_floor()
            if victim is None or not self.pool.evict_from(victim):
                message = "the accounts promised more blocks than they can spare"
                raise RuntimeError(message)

    def _block(self, table: BlockTable, index: int) -> Block:
        return self.pool.blocks[table.block_ids[index]]

    def _shrink(self, table: BlockTable, num_blocks: int) -> None:
        while len(table.block_ids) > num_blocks:
            self.pool.release(self.pool.blocks[table.block_ids.pop()])


def _count(payers: Iterable[Holder], tail: Account) -> Counter[Account]:
    """Blocks by account; the tail is there even if it pays for none."""
    needs = Counter({tail: 0})
    needs.update(payer.account for payer in payers)
    return needs
