from __future__ import annotations

from freehold.kv.lazy_heap import LazyHeap


def test_the_smallest_priority_comes_first_and_ties_go_to_the_smaller_item() -> None:
    heap = LazyHeap()
    for item, priority in ((3, 1.0), (2, 1.0), (1, 5.0)):
        heap.set(item, priority)
    assert heap.peek() == 2


def test_a_moved_item_counts_with_its_new_priority_only() -> None:
    heap = LazyHeap()
    heap.set(1, 1)
    heap.set(2, 2)
    heap.set(1, 3)
    assert heap.peek() == 2
    heap.set(1, 1)
    assert heap.peek() == 1


def test_a_discarded_item_never_surfaces() -> None:
    heap = LazyHeap()
    heap.set(1, 1)
    heap.discard(1)
    heap.discard(1)
    assert heap.peek() is None
    assert 1 not in heap


def test_an_item_that_comes_back_with_its_old_priority_is_found_once() -> None:
    heap = LazyHeap()
    heap.set(1, 1)
    heap.discard(1)
    heap.set(1, 1)
    heap.discard(1)
    assert heap.peek() is None
    assert len(heap) == 0


def test_moving_one_item_for_ever_does_not_grow_the_heap() -> None:
    heap = LazyHeap()
    for priority in range(10_000):
        heap.set(1, priority)
    assert heap.num_entries < 100
    assert heap.peek() == 1
