"""Clients that go away in mid-stream leave nothing behind."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from tests.support.service import RunningService

pytestmark = pytest.mark.service

NUM_CLIENTS = 100
CONCURRENCY = 16


async def test_a_hundred_clients_that_leave_at_any_point(
    async_acme: AsyncOpenAI, service: RunningService, new_text: str
) -> None:
    """Some before the first byte, some in mid-stream, some share a prefix, some fork."""
    rng = random.Random(1)
    gate = asyncio.Semaphore(CONCURRENCY)

    async def leave_early(number: int) -> int:
        text = new_text if number % 2 else f"{number} {new_text}"
        async with gate:
            stream = await async_acme.chat.completions.create(
                model=service.model,
                messages=[{"role": "user", "content": text}],
                max_tokens=400,
                n=1 + number % 3 // 2,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            wanted, seen = rng.randrange(12), 0
            async with stream:
                async for _ in stream:
                    seen += 1
                    if seen > wanted:
                        break
            return seen

    async def never_wait(number: int) -> None:
        async with gate:
            try:
                async with asyncio.timeout(rng.uniform(0.001, 0.05)):
                    await async_acme.completions.create(
                        model=service.model, prompt=f"{number} {new_text}", max_tokens=400
                    )
            except TimeoutError:
                pass

    seen = await asyncio.gather(*map(leave_early, range(NUM_CLIENTS)))
    await asyncio.gather(*map(never_wait, range(NUM_CLIENTS // 4)))

    assert all(seen)
    await asyncio.to_thread(service.wait_idle)
    for replica in service.status().replicas:
        assert replica.active_blocks == 0
        assert replica.free_blocks + replica.cached_blocks == replica.num_blocks
