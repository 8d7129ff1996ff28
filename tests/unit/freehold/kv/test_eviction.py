from __future__ import annotations

from freehold.kv.eviction import EvictionOrder
from freehold.protocol import BlockKey

K = [BlockKey(bytes([i])) for i in range(8)]


def evict_all(order: EvictionOrder, parents: dict[int, int | None]) -> list[int]:
    """Block ids in the order they go; block i has key K[i]."""
    gone: list[int] = []
    while (block_id := order.peek()) is not None:
        parent = parents[block_id]
        order.remove(K[block_id], None if parent is None else K[parent])
        gone.append(block_id)
    return gone


def test_a_chain_goes_from_its_end_even_if_its_head_is_oldest() -> None:
    order = EvictionOrder()
    parents = {0: None, 1: 0, 2: 1}
    for tick, block_id in enumerate((0, 1, 2)):
        parent = parents[block_id]
        order.add(block_id, K[block_id], None if parent is None else K[parent], tick)
    assert evict_all(order, parents) == [2, 1, 0]


def test_the_least_recently_used_leaf_goes_first() -> None:
    order = EvictionOrder()
    parents = {0: None, 1: 0, 2: 0, 3: None}
    order.add(3, K[3], None, 5)
    order.add(2, K[2], K[0], 7)
    order.add(1, K[1], K[0], 6)
    order.add(0, K[0], None, 8)
    assert evict_all(order, parents) == [3, 1, 2, 0]


def test_a_child_of_a_missing_parent_is_a_leaf_and_counts_when_the_parent_comes_back() -> None:
    order = EvictionOrder()
    order.add(1, K[1], K[0], 9)
    assert order.peek() == 1
    order.add(0, K[0], None, 1)
    assert evict_all(order, {0: None, 1: 0}) == [1, 0]


def test_a_parent_whose_child_is_in_use_again_is_a_leaf() -> None:
    order = EvictionOrder()
    order.add(1, K[1], K[0], 1)
    order.add(0, K[0], None, 2)
    order.remove(K[1], K[0])
    assert order.peek() == 0


def test_nothing_cached_nothing_to_evict() -> None:
    assert EvictionOrder().peek() is None
