"""The reader's end of one request, and the hand-over to it from the step thread.

Everything a step produced for one event loop crosses in a single ``call_soon_threadsafe``: waking
a loop costs more than a token's own work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freehold.errors import FreeholdError
    from freehold.protocol import Delta, RequestId


@dataclass(slots=True)
class Parcel:
    """What one stream gets from one step; ``is_last`` ends it, by ``error`` if there is one."""

    deltas: list[Delta] = field(default_factory=list["Delta"])
    is_last: bool = False
    error: FreeholdError | None = None


class Stream:
    """Created in its reader's event loop; all methods run there, except ``loop``'s readers."""

    def __init__(self, request_id: RequestId) -> None:
        self.request_id = request_id
        self.loop = asyncio.get_running_loop()
        self.is_over = False
        self._deltas: deque[Delta] = deque()
        self._error: FreeholdError | None = None
        self._arrived = asyncio.Event()

    def receive(self, parcel: Parcel) -> None:
        self._deltas.extend(parcel.deltas)
        self._error = parcel.error
        self.is_over = parcel.is_last
        self._arrived.set()

    async def next(self) -> Delta | None:
        """The next delta, None after the last.

        Raises:
            FreeholdError: the request has failed; deltas before that come first.
        """
        while not self._deltas:
            if self._error is not None:
                # One failure ends many streams: each raises its own, with its own traceback.
                raise type(self._error)(*self._error.args)
            if self.is_over:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._deltas.popleft()


def hand_over(parcels: dict[Stream, Parcel]) -> list[Stream]:
    """Wake every loop once; returns the streams whose loop is closed: nobody will read them."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Stream, Parcel]]] = {}
    for stream, parcel in parcels.items():
        by_loop.setdefault(stream.loop, []).append((stream, parcel))
    lost: list[Stream] = []
    for loop, items in by_loop.items():
        try:
            loop.call_soon_threadsafe(_receive_all, items)
        except RuntimeError:  # the loop was closed with streams still open
            lost.extend(stream for stream, _ in items)
    return lost


def _receive_all(items: Iterable[tuple[Stream, Parcel]]) -> None:
    for stream, parcel in items:
        stream.receive(parcel)
