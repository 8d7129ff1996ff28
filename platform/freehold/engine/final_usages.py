"""The last usage of requests that are over, for whoever settles them late.

Bounded in time and number. May be asked any number of times and from any thread: settling is
idempotent elsewhere, so this only has to give the same answer while it gives one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from freehold.protocol import RequestId, Usage


class FinalUsages:
    """Request id → usage, forgotten ``ttl_s`` after its end."""

    def __init__(self, *, ttl_s: float, max_entries: int, clock: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._max_entries = max_entries
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[RequestId, tuple[float, Usage]] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._entries)

    def record(self, request_id: RequestId, usage: Usage) -> None:
        with self._lock:
            self._entries.pop(request_id, None)  # an id that comes again moves to the end
            self._entries[request_id] = (self._clock(), usage)
            self._prune()

    def get(self, request_id: RequestId) -> Usage | None:
        with self._lock:
            self._prune()
            entry = self._entries.get(request_id)
        return None if entry is None else entry[1]

    def _prune(self) -> None:
        horizon_s = self._clock() - self._ttl_s
        while self._entries:
            oldest = next(iter(self._entries))
            if self._entries[oldest][0] > horizon_s and len(self._entries) <= self._max_entries:
                return
            del self._entries[oldest]
