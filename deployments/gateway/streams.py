"""The deltas of all prompts of one HTTP request, as they come.

One prompt is one stream, read directly. Several run side by side, each in a task with a context of
its own (two calls on one Serve handle in one context wait for each other for ever), behind a
bounded queue, so that a slow client slows the engines down.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deployments.gateway.ports import Fleet, GenerationStream, RouteHint, RouteInfo
    from freehold.protocol import Delta, GenerateRequest

_QUEUED_PER_PROMPT = 4


class PromptStreams(Protocol):
    """Use by one task: ``open``, iterate, and ``aclose`` whatever happened. Raises what the fleet
    raises; the first failure ends all."""

    @property
    def route(self) -> RouteInfo | None:
        """Of the first prompt; None until it is known."""
        ...

    async def open(self) -> None: ...
    async def next(self) -> tuple[int, Delta] | None:
        """Index of the prompt and what it gained; None at the end of all."""
        ...

    async def aclose(self) -> None: ...


def prompt_streams(
    fleet: Fleet, requests: Sequence[GenerateRequest], hint: RouteHint
) -> PromptStreams:
    if len(requests) == 1:
        return _OneStream(fleet, requests[0], hint)
    return _ManyStreams(fleet, requests, hint)


class _OneStream:
    def __init__(self, fleet: Fleet, request: GenerateRequest, hint: RouteHint) -> None:
        self._fleet = fleet
        self._request = request
        self._hint = hint
        self._stream: GenerationStream | None = None

    @property
    def route(self) -> RouteInfo | None:
        return None if self._stream is None else self._stream.route

    async def open(self) -> None:
        self._stream = await self._fleet.open(self._request, self._hint)

    async def next(self) -> tuple[int, Delta] | None:
        if self._stream is None:
            return None
        try:
            return 0, await self._stream.__anext__()
        except StopAsyncIteration:
            return None

    async def aclose(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()


class _ManyStreams:
    def __init__(self, fleet: Fleet, requests: Sequence[GenerateRequest], hint: RouteHint) -> None:
        self._fleet = fleet
        self._requests = requests
        self._hint = hint
        self.route: RouteInfo | None = None
        self._num_running = len(requests)
        # A pump's last item is None when it is done and its exception when it failed.
        self._queue: asyncio.Queue[tuple[int, Delta] | Exception | None] = asyncio.Queue(
            _QUEUED_PER_PROMPT * len(requests)
        )
        self._pumps: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        self._pumps = [
            asyncio.create_task(self._pump(i, request), context=contextvars.Context())
            for i, request in enumerate(self._requests)
        ]

    async def next(self) -> tuple[int, Delta] | None:
        while self._num_running:
            item = await self._queue.get()
            if isinstance(item, Exception):
                raise item
            if item is not None:
                return item
            self._num_running -= 1
        return None

    async def aclose(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _pump(self, index: int, request: GenerateRequest) -> None:
        try:
            stream = await self._fleet.open(request, self._hint)
            try:
                if index == 0:
                    self.route = stream.route
                async for delta in stream:
                    await self._queue.put((index, delta))
            finally:
                await stream.aclose()
        except Exception as error:  # noqa: BLE001  # raised by ``next``, in the reader's task
            await self._queue.put(error)
        else:
            await self._queue.put(None)
