from __future__ import annotations

import pytest

from freehold.kv.accounts import Accounts
from freehold.kv.events import BlockRemoved, BlockStored
from freehold.kv.pool import BlockPool, Holder
from freehold.protocol import AccountId, AccountPolicy, BlockKey, EpochId

K = [BlockKey(bytes([i])) for i in range(8)]


@pytest.fixture
def accounts() -> Accounts:
    return Accounts()


@pytest.fixture
def holder(accounts: Accounts) -> Holder:
    return Holder(accounts[AccountId("tn_a")], EpochId("e1"))


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(4, block_size=16)


def counts(pool: BlockPool) -> tuple[int, int, int]:
    return pool.num_free, pool.num_active, pool.num_cached


def test_a_block_without_a_key_goes_from_active_straight_to_free(
    pool: BlockPool, holder: Holder
) -> None:
    block = pool.take(holder)
    assert counts(pool) == (3, 1, 0)
    pool.release(block)
    assert counts(pool) == (4, 0, 0)
    assert block.holder is None


def test_a_published_block_stays_findable_when_nobody_uses_it(
    pool: BlockPool, holder: Holder
) -> None:
    block = pool.take(holder)
    pool.publish(block, K[0], None)
    pool.release(block)
    assert counts(pool) == (3, 0, 1)
    assert pool.lookup(K[0]) is block
    pool.share(block)
    assert counts(pool) == (3, 1, 0)


def test_only_the_last_release_ends_the_use(pool: BlockPool, holder: Holder) -> None:
    block = pool.take(holder)
    pool.share(block)
    pool.release(block)
    assert counts(pool) == (3, 1, 0)
    pool.release(block)
    assert counts(pool) == (4, 0, 0)


def test_releasing_twice_is_refused(pool: BlockPool, holder: Holder) -> None:
    block = pool.take(holder)
    pool.publish(block, K[0], None)
    pool.release(block)
    with pytest.raises(ValueError, match="not referenced"):
        pool.release(block)
    pool.unpublish(block)
    with pytest.raises(ValueError, match="is free"):
        pool.release(block)
    assert counts(pool) == (4, 0, 0)


def test_a_reused_block_is_not_found_by_its_old_key(pool: BlockPool, holder: Holder) -> None:
    block = pool.take(holder)
    pool.publish(block, K[0], None)
    pool.release(block)
    assert pool.evict_from(holder.account)
    again = pool.take(holder)
    assert again is block
    assert again.key is None
    assert pool.lookup(K[0]) is None


def test_unpublishing_a_block_in_use_keeps_it_active_and_makes_it_private(
    pool: BlockPool, holder: Holder
) -> None:
    block = pool.take(holder)
    pool.publish(block, K[0], None)
    assert not pool.unpublish(block)
    assert counts(pool) == (3, 1, 0)
    pool.release(block)
    assert counts(pool) == (4, 0, 0)


def test_evicting_from_an_account_without_cached_blocks_does_nothing(
    pool: BlockPool, holder: Holder
) -> None:
    pool.take(holder)
    assert not pool.evict_from(holder.account)
    assert counts(pool) == (3, 1, 0)


def test_charges_follow_the_states(pool: BlockPool, holder: Holder) -> None:
    account = holder.account
    block = pool.take(holder)
    pool.publish(block, K[0], None)
    assert (account.num_active, account.num_cached) == (1, 0)
    pool.release(block)
    assert (account.num_active, account.num_cached) == (0, 1)
    pool.evict_from(account)
    assert (account.num_active, account.num_cached) == (0, 0)


def test_a_release_over_a_lowered_ceiling_evicts_at_once(
    pool: BlockPool, accounts: Accounts, holder: Holder
) -> None:
    blocks = [pool.take(holder) for _ in range(3)]
    for block, key in zip(blocks, K, strict=False):
        pool.publish(block, key, None)
    accounts.adopt(AccountId("tn_a"), AccountPolicy(version=1, ceiling_blocks=1))
    for block in blocks:
        pool.release(block)
    assert counts(pool) == (3, 0, 1)


def test_every_change_of_what_is_findable_is_an_event(pool: BlockPool, holder: Holder) -> None:
    a_id = AccountId("tn_a")
    first, second = pool.take(holder), pool.take(holder)
    pool.publish(first, K[0], None)
    pool.publish(second, K[1], K[0])
    assert pool.drain_events() == [BlockStored((K[0], K[1]), None, 16, a_id)]
    pool.release(second)
    pool.release(first)
    assert pool.drain_events() == []
    pool.evict_from(holder.account)
    pool.unpublish(first)
    assert pool.drain_events() == [BlockRemoved((K[1], K[0]), a_id)]


def test_free_blocks_are_reused_last_in_first_out(pool: BlockPool, holder: Holder) -> None:
    blocks = [pool.take(holder) for _ in range(3)]
    assert [block.block_id for block in blocks] == [0, 1, 2]
    pool.release(blocks[0])
    pool.release(blocks[2])
    assert [pool.take(holder).block_id for _ in range(3)] == [2, 0, 3]
