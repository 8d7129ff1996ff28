"""PrefixIndex: leading blocks by incarnation, bounded, forgotten with their owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cache_router.index import PrefixIndex
from freehold.kv.keys import Domain, ModelIdentity, block_keys
from freehold.protocol import AccountId, EpochId, Incarnation, Owner
from freehold.secret import Secret
from tests.support.engine_values import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freehold.protocol import BlockKey

A, B = Incarnation("a"), Incarnation("b")


def make_index(*incarnations: Incarnation, max_blocks: int = 100) -> PrefixIndex:
    index = PrefixIndex()
    for incarnation in incarnations:
        index.register(incarnation, max_blocks)
    return index


def test_counts_leading_blocks_only() -> None:
    index = make_index(A, B)
    chain = keys("x", 5)
    index.insert(A, chain[:3])
    index.insert(B, chain)
    index.remove(B, chain[1:2])
    assert index.match(chain) == {A: 3, B: 1}
    assert index.match(chain[1:]) == {A: 2}
    assert index.match(()) == {}


def test_two_tenants_with_equal_tokens_never_meet() -> None:
    """Paired: the same keys hit, another salt's miss."""

    def chain(tenant: str) -> Sequence[BlockKey]:
        owner = Owner(AccountId(tenant), EpochId("e"))
        domain = Domain(owner, Secret(tenant.encode()))
        model = ModelIdentity("m")
        return block_keys(range(64), block_size=16, model=model, tail=domain).block_keys

    index = make_index(A)
    index.insert(A, chain("tn_a"))
    assert index.match(chain("tn_a")) == {A: 4}
    assert index.match(chain("tn_b")) == {}


def test_a_dropped_incarnation_is_gone_and_late_replies_do_not_bring_it_back() -> None:
    index = make_index(A, B)
    index.insert(A, keys("x", 5))
    index.insert(B, keys("x", 2))
    index.drop(A)
    index.insert(A, keys("x", 5))
    assert index.match(keys("x", 5)) == {B: 2}
    assert len(index) == 2
    assert index.check()


def test_a_newcomer_inherits_nothing_from_the_one_that_left() -> None:
    index = make_index(A)
    index.insert(A, keys("x", 5))
    index.drop(A)
    index.register(B, 100)
    assert index.match(keys("x", 5)) == {}


def test_forgets_the_end_of_the_oldest_chain_first() -> None:
    index = make_index(A, max_blocks=6)
    old, new = keys("old", 4), keys("new", 4)
    index.insert(A, old)
    index.insert(A, new)
    assert index.match(new) == {A: 4}
    assert index.match(old) == {A: 2}
    assert index.num_blocks(A) == 6


def test_use_keeps_a_chain_young() -> None:
    index = make_index(A, max_blocks=6)
    used = keys("used", 3)
    index.insert(A, used)
    index.insert(A, keys("idle", 3))
    index.insert(A, used)
    index.insert(A, keys("new", 3))
    assert index.match(used) == {A: 3}
    assert index.match(keys("idle", 3)) == {}


def test_a_chain_longer_than_the_pool_keeps_its_beginning() -> None:
    index = make_index(A, max_blocks=4)
    index.insert(A, keys("x", 10))
    assert index.match(keys("x", 10)) == {A: 4}


def test_memory_is_flat_while_replicas_come_and_go() -> None:
    index = PrefixIndex()
    for generation in range(200):
        incarnation = Incarnation(f"i{generation}")
        index.register(incarnation, 10)
        index.insert(incarnation, keys(f"c{generation}", 10))
        index.drop(Incarnation(f"i{generation - 1}"))
        assert len(index) == 10
    assert index.check()
