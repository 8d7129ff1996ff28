"""A client that goes away cancels the work that is done for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from starlette.types import Receive


class ClientGone(Exception):  # not a FreeholdError: there is nobody left to tell
    """The client closed the connection before its answer was complete."""


class DisconnectWatch:
    """While open, cancels the task that opened it when the client disconnects.

    The block then ends with ``ClientGone``. Needs the body to be read: what ``receive`` gives
    next is the disconnect.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._gone = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            message = "a disconnect can only cancel a task"
            raise RuntimeError(message)
        self._watcher = asyncio.create_task(self._watch(task))
        return self

    def stand_down(self) -> None:
        """Call it before the last byte is sent: the connection may close any time after it."""
        if self._watcher is not None:
            self._watcher.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stand_down()
        if self._gone and isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            # Somebody else (a shutdown) may want this task to end as well: then it stays so.
            if task is not None and task.uncancel() == 0:
                raise ClientGone from None

    async def _watch(self, task: asyncio.Task[object]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        task.cancel()
