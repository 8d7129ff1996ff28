"""The fast structures of the eviction order against slow ones that are obviously right."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from freehold.kv.eviction import EvictionOrder
from freehold.kv.lazy_heap import LazyHeap
from freehold.protocol import BlockKey

NUM_BLOCKS = 8
K = [BlockKey(bytes([i])) for i in range(NUM_BLOCKS)]

parents_of = st.tuples(*(st.none() | st.integers(0, i - 1) for i in range(1, NUM_BLOCKS))).map(
    lambda parents: (None, *parents)
)
"""A forest: block i's parent is an earlier block, or none."""


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "discard"]), st.integers(0, 5), st.integers(0, 9)),
        max_size=300,
    )
)
def test_a_lazy_heap_is_a_dictionary_with_a_minimum(changes: list[tuple[str, int, int]]) -> None:
    heap = LazyHeap()
    model: dict[int, float] = {}
    for change, item, priority in changes:
        if change == "set":
            heap.set(item, priority)
            model[item] = priority
        else:
            heap.discard(item)
            model.pop(item, None)
        expected = min(model, key=lambda item: (model[item], item)) if model else None
        assert heap.peek() == expected
        assert len(heap) == len(model)
        assert heap.num_entries <= 2 * len(model) + 64


@given(parents_of, st.lists(st.integers(0, NUM_BLOCKS - 1), max_size=60))
def test_the_next_block_is_the_least_recently_used_leaf(
    parents: tuple[int | None, ...], toggles: list[int]
) -> None:
    order = EvictionOrder()
    last_used: dict[int, int] = {}
    for tick, block in enumerate(toggles):
        parent = parents[block]
        parent_key = None if parent is None else K[parent]
        if block in last_used:
            del last_used[block]
            order.remove(K[block], parent_key)
        else:
            last_used[block] = tick
            order.add(block, K[block], parent_key, tick)
        with_children = {parents[child] for child in last_used}
        leaves = [block for block in last_used if block not in with_children]
        assert order.peek() == (min(leaves, key=lambda leaf: last_used[leaf]) if leaves else None)
        assert bool(leaves) == bool(last_used), "what is cached can always be evicted"
