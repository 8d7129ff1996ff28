"""A bound on how long a block may wait, as an error that says what took too long."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from deployments.gateway.refusals import TimeLimitExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@asynccontextmanager
async def time_limit(what: str, limit_s: float) -> AsyncGenerator[None]:
    """
    Raises:
        TimeLimitExceeded: the block took longer.
    """
    timeout = asyncio.timeout(limit_s)
    try:
        async with timeout:
            yield
    except TimeoutError:
        if timeout.expired():
            raise TimeLimitExceeded(what, limit_s) from None
        raise
