"""The laws of the KV pool under any order of operations, against a model that knows the contents.

The model plays the model runner: it writes into every slot what a sequence computes there (its
tokens and domains up to that position), so that a block found by a key can be compared with what
its finder would have computed itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from freehold.kv.cache import KVCache
from freehold.kv.events import AllBlocksCleared, BlockStored
from freehold.kv.keys import Span
from freehold.protocol import AccountId, AccountPolicy, CacheMode, EpochId
from tests.support.kv import BLOCK_SIZE, make_domain, make_request

if TYPE_CHECKING:
    from freehold.kv.cache import BlockTable
    from freehold.kv.keys import Domain
    from freehold.protocol import BlockKey, GenerateRequest

NUM_BLOCKS = 12
TENANTS = ("tn_a", "tn_b")
PUBLIC = "pb_1"
ACCOUNTS = (*TENANTS, PUBLIC)

Content = tuple[object, ...]
"""What a slot holds: the domain chain and the tokens up to its position."""


def _prompt(blocks: list[int], rest: list[int]) -> list[int]:
    """Uniform blocks, so that prompts often share a prefix, and a partial one."""
    return [token for token in blocks for _ in range(BLOCK_SIZE)] + rest


prompts = st.builds(
    _prompt,
    st.lists(st.integers(0, 1), max_size=4),
    st.lists(st.integers(0, 1), min_size=1, max_size=3),
)


@dataclass(eq=False)
class Sequence:
    request: GenerateRequest
    domains: tuple[tuple[int, Domain], ...]
    """(first token, domain), widest first."""
    tokens: list[int]
    table: BlockTable
    num_computed: int

    def content(self, position: int) -> Content:
        salts = tuple(d.salt.reveal() for start, d in self.domains if start <= position)
        return (*salts, *self.tokens[: position + 1])

    def payer(self, index: int) -> AccountId:
        """Who a block that this sequence computes is charged to."""
        tail = self.request.tail.account_id
        if self.request.cache is not CacheMode.ON:
            return tail
        regions = (r.account_id for r in self.request.regions if index < r.end_block)
        return next(regions, tail)


class KVPoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = KVCache(NUM_BLOCKS, BLOCK_SIZE)
        self.sequences: list[Sequence] = []
        self.slots: dict[int, dict[int, Content]] = {i: {} for i in range(NUM_BLOCKS)}
        self.policies = {AccountId(name): AccountPolicy(version=0) for name in ACCOUNTS}
        self.epochs: Counter[str] = Counter(ACCOUNTS)
        self.mirror: set[BlockKey] = set()
        self.purged: set[tuple[AccountId, EpochId]] = set()
        self.num_calm = 0
        """Steps since something wiped the cache; without them little would ever be in it."""

    @initialize(floors=st.lists(st.integers(0, 4), min_size=3, max_size=3))
    def give_floors(self, floors: list[int]) -> None:
        for name, floor in zip(ACCOUNTS, floors, strict=True):
            self.adopt(AccountId(name), AccountPolicy(version=1, floor_blocks=floor))

    # What happens to sequences

    @precondition(lambda self: len(self.sequences) < 6)
    @rule(
        tenant=st.sampled_from(TENANTS),
        tokens=prompts,
        mode=st.sampled_from([CacheMode.ON, CacheMode.ON, CacheMode.NO_STORE, CacheMode.OFF]),
        end_user=st.booleans(),
        num_public=st.sampled_from([0, 0, 4, 6, 8]),
        progress=st.sampled_from(["queued", "prefilled", "finished"]),
    )
    def open(
        self,
        tenant: str,
        tokens: list[int],
        mode: CacheMode,
        end_user: bool,
        num_public: int,
        progress: str,
    ) -> None:
        tail = self.domain(tenant)
        spans: list[Span] = []
        if num_public >= BLOCK_SIZE:
            spans.append(Span(min(num_public, len(tokens)), self.domain(PUBLIC)))
        if end_user:
            spans.append(Span(spans[-1].end_token if spans else 0, tail))
            tail = make_domain(tenant, f"e{self.epochs[tenant]}", end_user="u")
        request = make_request(tokens, tail, spans=spans, cache=mode)
        starts = [0, *(span.end_token // BLOCK_SIZE * BLOCK_SIZE for span in spans)]
        domains = [*(span.domain for span in spans), tail]
        sequence = Sequence(
            request=request,
            domains=tuple(zip(starts, domains, strict=True)),
            tokens=list(tokens),
            table=self.cache.open(request),
            num_computed=0,
        )
        self.sequences.append(sequence)
        self.attach(sequence)
        if progress != "queued":
            self.compute(sequence, len(tokens), num_lagging=0, next_token=0)
        if progress == "finished":
            self.sequences.remove(sequence)
            self.cache.free(sequence.table)

    @precondition(lambda self: self.sequences)
    @rule(
        data=st.data(),
        num_tokens=st.sampled_from([1, 4, 7, 20]),
        num_lagging=st.sampled_from([0, 0, 2, 5]),
        next_token=st.integers(0, 1),
    )
    def compute_one(
        self, data: st.DataObject, num_tokens: int, num_lagging: int, next_token: int
    ) -> None:
        self.compute(self.pick(data), num_tokens, num_lagging, next_token)

    @precondition(lambda self: self.sequences)
    @rule(next_token=st.integers(0, 1))
    def step(self, next_token: int) -> None:
        for sequence in self.sequences:
            self.compute(sequence, 8, num_lagging=0, next_token=next_token)

    @precondition(lambda self: self.advanced and len(self.sequences) < 6)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(self.advanced))
        num_tokens = data.draw(st.integers(0, parent.num_computed))
        child = replace(
            parent,
            tokens=list(parent.tokens),
            table=self.cache.fork(parent.table, num_tokens),
            num_computed=num_tokens // BLOCK_SIZE * BLOCK_SIZE,
        )
        keep = max(len(parent.request.token_ids), child.num_computed)
        del child.tokens[keep:]
        child.tokens.append(data.draw(st.integers(0, 1)))
        self.sequences.append(child)

    @precondition(lambda self: self.advanced)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.advanced))
        num_tokens = data.draw(st.integers(0, sequence.num_computed))
        sequence.num_computed = self.cache.truncate(sequence.table, num_tokens)
        assert sequence.num_computed <= num_tokens
        del sequence.tokens[max(len(sequence.request.token_ids), num_tokens) :]
        sequence.tokens.append(data.draw(st.integers(0, 1)))

    @precondition(lambda self: self.advanced)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.advanced))
        self.cache.free(sequence.table)
        self.attach(sequence)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), times=st.integers(1, 2))
    def end(self, data: st.DataObject, times: int) -> None:
        """Finished or aborted: the pool cannot tell, and freeing twice is harmless."""
        sequence = self.pick(data)
        self.sequences.remove(sequence)
        for _ in range(times):
            self.cache.free(sequence.table)

    # What happens to accounts

    @precondition(lambda self: self.num_calm >= 4)
    @rule(
        name=st.sampled_from(ACCOUNTS),
        floor=st.integers(0, 4),
        room=st.sampled_from([None, None, 0, 3, 6]),
        weight=st.sampled_from([1.0, 3.0]),
    )
    def change_policy(self, name: str, floor: int, room: int | None, weight: float) -> None:
        account_id = AccountId(name)
        ceiling = None if room is None else floor + room
        version = self.policies[account_id].version + 1
        self.adopt(account_id, AccountPolicy(version, floor, ceiling, weight))

    @precondition(lambda self: self.num_calm >= 8)
    @rule(name=st.sampled_from(ACCOUNTS), to_new_epoch=st.booleans())
    def purge(self, name: str, to_new_epoch: bool) -> None:
        """To a new epoch everything goes; to the current one nothing does."""
        account_id = AccountId(name)
        self.num_calm = 0
        if to_new_epoch:
            self.purged.add((account_id, EpochId(f"e{self.epochs[name]}")))
            self.epochs[name] += 1
        keep = EpochId(f"e{self.epochs[name]}")
        num_free = self.cache.num_free
        freed = self.cache.purge(account_id, keep)
        assert self.cache.num_free == num_free + freed
        for block in self.cache.pool.findable:
            assert block.holder is not None
            if block.holder.account.account_id == account_id:
                assert block.holder.epoch_id == keep

    @precondition(lambda self: self.num_calm >= 16)
    @rule()
    def restart(self) -> None:
        """A new process on the same memory: nothing in it is findable."""
        self.num_calm = 0
        for sequence in self.sequences:
            self.cache.free(sequence.table)
        self.sequences.clear()
        for block in tuple(self.cache.pool.findable):
            self.cache.pool.unpublish(block)
        assert self.cache.num_free == NUM_BLOCKS

    @rule()
    def drain(self) -> None:
        for event in self.cache.drain_events():
            if isinstance(event, AllBlocksCleared):
                self.mirror.clear()
            elif isinstance(event, BlockStored):
                assert not self.mirror & set(event.block_hashes)
                self.mirror.update(event.block_hashes)
            else:
                self.mirror.difference_update(event.block_hashes)
        assert self.mirror == {block.key for block in self.cache.pool.findable}

    # The laws

    @invariant()
    def blocks_are_conserved(self) -> None:
        assert self.cache.check()
        blocks = self.cache.pool.blocks
        assert self.cache.num_active == sum(b.ref_count > 0 for b in blocks)
        assert self.cache.num_cached == sum(b.ref_count == 0 and b.key is not None for b in blocks)
        assert self.cache.num_free == sum(b.ref_count == 0 and b.key is None for b in blocks)

    @invariant()
    def references_equal_the_tables_that_hold_a_block(self) -> None:
        held = Counter(i for s in self.sequences for i in s.table.block_ids)
        assert {b.block_id: b.ref_count for b in self.cache.pool.blocks if b.ref_count} == held
        for sequence in self.sequences:
            assert len(set(sequence.table.block_ids)) == len(sequence.table.block_ids)

    @invariant()
    def no_block_is_under_two_owners(self) -> None:
        for sequence in self.sequences:
            for index, block_id in enumerate(sequence.table.block_ids):
                holder = self.cache.pool.blocks[block_id].holder
                assert holder is not None
                owner = sequence.table.origin.owner(index)
                assert holder.account.account_id in {
                    sequence.payer(index),
                    owner.account.account_id,
                }

    @invariant()
    def charges_equal_the_sum_over_blocks(self) -> None:
        active: Counter[AccountId] = Counter()
        cached: Counter[AccountId] = Counter()
        for block in self.cache.pool.blocks:
            if block.holder is not None:
                (active if block.ref_count else cached)[block.holder.account.account_id] += 1
        usage = self.cache.usage_by_account
        assert {name: u.active_blocks for name, u in usage.items() if u.active_blocks} == active
        assert {name: u.cached_blocks for name, u in usage.items() if u.cached_blocks} == cached

    @invariant()
    def a_findable_block_was_written_and_is_what_its_key_says(self) -> None:
        pool = self.cache.pool
        for block in pool.findable:
            assert block.key is not None
            assert pool.lookup(block.key) is block
            assert len(self.slots[block.block_id]) == BLOCK_SIZE
        keys = [block.key for block in pool.blocks if block.key is not None]
        assert len(keys) == len(set(keys)) == len(list(pool.findable))

    @invariant()
    def computed_tokens_lie_in_the_sequences_own_blocks(self) -> None:
        for sequence in self.sequences:
            for position in range(sequence.num_computed):
                index, offset = divmod(position, BLOCK_SIZE)
                block_id = sequence.table.block_ids[index]
                assert self.slots[block_id][offset] == sequence.content(position)

    @invariant()
    def over_its_ceiling_an_account_caches_nothing(self) -> None:
        for account_id, usage in self.cache.usage_by_account.items():
            ceiling = self.policies[account_id].ceiling_blocks
            if ceiling is not None and usage.active_blocks + usage.cached_blocks > ceiling:
                assert usage.cached_blocks == 0

    def teardown(self) -> None:
        for sequence in self.sequences:
            self.cache.free(sequence.table)
        assert self.cache.num_active == 0
        assert self.cache.num_free + self.cache.num_cached == NUM_BLOCKS
        self.drain()

    # The model's own steps

    @property
    def advanced(self) -> list[Sequence]:
        return [s for s in self.sequences if s.num_computed >= BLOCK_SIZE]

    def compute(
        self, sequence: Sequence, num_tokens: int, num_lagging: int, next_token: int
    ) -> None:
        """Allocate, write, publish all or some of it; then sample a token at the end."""
        target = min(sequence.num_computed + num_tokens, len(sequence.tokens))
        if not self.allocate(sequence, target):
            return
        for position in range(sequence.num_computed, target):
            self.write(sequence, position)
        sequence.num_computed = target
        self.publish(sequence, max(0, target - num_lagging))
        if target == len(sequence.tokens):
            sequence.tokens.append(next_token)
        self.num_calm += 1

    def pick(self, data: st.DataObject) -> Sequence:
        return data.draw(st.sampled_from(self.sequences))

    def domain(self, name: str) -> Domain:
        return make_domain(name, f"e{self.epochs[name]}")

    def adopt(self, account_id: AccountId, policy: AccountPolicy) -> None:
        self.policies[account_id] = policy
        self.cache.set_policy(account_id, policy)

    def attach(self, sequence: Sequence) -> None:
        limit = len(sequence.tokens) - 1
        sequence.num_computed = self.cache.attach(sequence.table, limit)
        assert sequence.num_computed <= limit
        assert sequence.num_computed % BLOCK_SIZE == 0
        if sequence.request.cache is CacheMode.OFF:
            assert sequence.num_computed == 0

    def publish(self, sequence: Sequence, num_tokens: int) -> None:
        table, pool = sequence.table, self.cache.pool
        old = {block.key for block in pool.findable}
        fresh = range(table.num_settled, num_tokens // BLOCK_SIZE)
        self.cache.publish(table, sequence.tokens, num_tokens)
        expected = {table.keys[index] for index in fresh if self.may_insert(sequence, index)}
        assert {block.key for block in pool.findable} == old | expected

    def may_insert(self, sequence: Sequence, index: int) -> bool:
        if sequence.request.cache is not CacheMode.ON:
            return False
        chain: list[tuple[AccountId, EpochId]] = []
        for region in sequence.request.regions:
            chain.append((region.account_id, region.epoch_id))
            if index < region.end_block:
                break
        else:
            chain.append((sequence.request.tail.account_id, sequence.request.tail.epoch_id))
        return not self.purged.intersection(chain)

    def write(self, sequence: Sequence, position: int) -> None:
        index, offset = divmod(position, BLOCK_SIZE)
        block = self.cache.pool.blocks[sequence.table.block_ids[index]]
        assert block.ref_count == 1, "a block has one writer"
        assert block.key is None, "nobody may find a block that is still written to"
        if offset == 0:
            self.slots[block.block_id].clear()
        self.slots[block.block_id][offset] = sequence.content(position)

    def allocate(self, sequence: Sequence, num_tokens: int) -> bool:
        """Check a decision of the pool against the rules of floors and ceilings."""
        before = self.held()
        free = self.cache.num_free
        old_ids = list(sequence.table.block_ids)
        num_blocks = -(-num_tokens // BLOCK_SIZE)
        needs = Counter(sequence.payer(i) for i in range(len(old_ids), num_blocks))
        tail = sequence.request.tail.account_id
        shortfall = self.cache.shortfall(sequence.table, num_tokens)
        is_short = not self.cache.allocate(sequence.table, num_tokens)
        assert is_short is (shortfall is not None)
        after = self.held()
        if shortfall is not None:
            assert sequence.table.block_ids == old_ids
            assert (after, self.cache.num_free) == (before, free)
            assert self.is_justified(needs, tail, shortfall.num_blocks)
            return False
        assert sequence.table.block_ids[: len(old_ids)] == old_ids
        assert len(sequence.table.block_ids) == max(num_blocks, len(old_ids))
        for account_id, policy in self.policies.items():
            lost = before[account_id] + needs[account_id] - after[account_id]
            if account_id != tail:
                assert after[account_id] >= min(before[account_id], policy.floor_blocks)
            assert lost >= 0
            if lost and free >= needs.total():
                assert policy.ceiling_blocks is not None, "evicted although blocks were free"
        return True

    def is_justified(self, needs: Counter[AccountId], tail: AccountId, num_short: int) -> bool:
        """No eviction that the rules allow could have made the room (floor <= ceiling here)."""
        usage = self.cache.usage_by_account
        room = self.cache.num_free
        over_ceiling = 0
        for account_id, policy in self.policies.items():
            active = usage[account_id].active_blocks if account_id in usage else 0
            cached = usage[account_id].cached_blocks if account_id in usage else 0
            need = needs[account_id]
            if need and policy.ceiling_blocks is not None:
                over_ceiling = max(over_ceiling, active + need - policy.ceiling_blocks)
            own = needs.total() if account_id == tail else need
            room += min(cached, max(own, active + cached + need - policy.floor_blocks))
        return over_ceiling >= num_short > 0 or needs.total() - room == num_short

    def held(self) -> Counter[AccountId]:
        usage = self.cache.usage_by_account
        return Counter({i: u.active_blocks + u.cached_blocks for i, u in usage.items()})


KVPoolMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestKVPool = KVPoolMachine.TestCase
