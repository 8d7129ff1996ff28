from __future__ import annotations

import asyncio
from functools import partial

import pytest

from deployments.bench.closed_loop import closed_loop


class _Crowd:
    """Counts how many jobs run at once."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    async def job(self, number: int) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(number % 3 + 1):
            await asyncio.sleep(0)
        self.now -= 1
        return number


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (4, 4), (99, 20)])
async def test_every_job_runs_once_and_no_more_than_wanted_at_a_time(
    concurrency: int, most: int
) -> None:
    crowd = _Crowd()
    done: list[None] = []
    jobs = [partial(crowd.job, number) for number in range(20)]

    results = await closed_loop(jobs, concurrency, lambda: done.append(None))

    assert sorted(results) == list(range(20))
    assert len(done) == 20
    assert crowd.most == most


async def test_the_first_failure_ends_the_loop_as_itself() -> None:
    started: list[int] = []

    async def job(number: int) -> int:
        started.append(number)
        await asyncio.sleep(0)
        if number == 2:
            raise LookupError(number)
        return number

    with pytest.raises(LookupError):
        await closed_loop([partial(job, number) for number in range(100)], concurrency=2)

    assert len(started) < 10
