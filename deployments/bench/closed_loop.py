"""A closed loop: so many users, each asking the next question when its answer has come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

_T = TypeVar("_T")


async def closed_loop(
    jobs: Sequence[Callable[[], Awaitable[_T]]],
    concurrency: int,
    on_done: Callable[[], None] = lambda: None,
) -> list[_T]:
    """Run every job, ``concurrency`` at a time; results in order of completion.

    The first job that fails ends the loop and its error is raised: half a figure is none.
    """
    pending = iter(jobs)
    results: list[_T] = []

    async def user() -> None:
        for job in pending:
            results.append(await job())
            on_done()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(jobs))):
                group.create_task(user())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return results
