from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from deployments.gateway.disconnect import ClientGone, DisconnectWatch

if TYPE_CHECKING:
    from starlette.types import Message


class Connection:
    """``receive`` of a client that leaves when told to."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}


async def test_leaving_ends_the_work() -> None:
    connection = Connection()

    connection.left.set()

    with pytest.raises(ClientGone):
        async with DisconnectWatch(connection.receive):
            await asyncio.Event().wait()

    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "the task can go on with other things"


async def test_work_that_ends_is_not_disturbed_afterwards() -> None:
    connection = Connection()

    async with DisconnectWatch(connection.receive) as watch:
        watch.stand_down()
        connection.left.set()
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)


async def test_a_shutdown_stays_a_cancellation() -> None:
    connection = Connection()

    async def work() -> None:
        async with DisconnectWatch(connection.receive):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError):
        async with DisconnectWatch(Connection().receive):
            raise ZeroDivisionError
