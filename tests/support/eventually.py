"""Waiting in tests for what another task or process will do, without timing it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


async def eventually(condition: Callable[[], bool], *, give_up_s: float = 60) -> None:
    """Return once ``condition`` holds. ``give_up_s`` ends a hang; it measures nothing."""
    async with asyncio.timeout(give_up_s):
        while not condition():  # noqa: ASYNC110 - what is watched cannot set an event
            await asyncio.sleep(0.001)
