"""A smallest-first queue of numbered items whose priorities may change.

A change leaves the old heap entry behind; it is skipped when it surfaces, and the heap is rebuilt
once most of it is stale, so memory follows the live items and each operation costs O(log n).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush


class LazyHeap:
    """Ties go to the smaller item, so the order never depends on history."""

    __slots__ = ("_heap", "_priorities")

    def __init__(self) -> None:
        self._priorities: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._priorities)

    def __contains__(self, item: int) -> bool:
        return item in self._priorities

    @property
    def num_entries(self) -> int:
        """Of the heap, stale ones included: memory, not contents."""
        return len(self._heap)

    def set(self, item: int, priority: float) -> None:
        """Add the item, or move it."""
        if self._priorities.get(item) == priority:
            return
        self._priorities[item] = priority
        heappush(self._heap, (priority, item))
        if len(self._heap) > 2 * len(self._priorities) + 64:
            self._heap = [(live, item) for item, live in self._priorities.items()]
            heapify(self._heap)

    def discard(self, item: int) -> None:
        self._priorities.pop(item, None)

    def peek(self) -> int | None:
        """The item with the smallest priority; None when there is none."""
        while self._heap:
            priority, item = self._heap[0]
            if self._priorities.get(item) == priority:
                return item
            heappop(self._heap)
        return None
