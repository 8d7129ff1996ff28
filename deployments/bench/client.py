"""One tenant's view of a service over HTTP: ask, and note how long it took and what was cached.

Speaks OpenAI's wire format plus Freehold's ``cache`` and ``ignore_eos``; knows no workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import httpx

from deployments.bench import wire
from deployments.bench.wire import RequestFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from deployments.bench.target import Target
    from freehold.protocol import CacheMode

CHAT_PATH, COMPLETIONS_PATH, MODELS_PATH = "/chat/completions", "/completions", "/models"
TIMEOUT_S = 600.0
"""Of one request: with reuse off a closed loop queues for minutes on a small machine."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One finished request. ``prompt_tokens`` includes the cached ones."""

    latency_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that the engine had to prefill."""
        return self.prompt_tokens - self.cached_tokens


class Service:
    """An open connection pool; close it by leaving the ``async with`` block."""

    def __init__(self, http: httpx.AsyncClient, model: str, clock: Callable[[], float]) -> None:
        self.model = model
        self.clock = clock
        self._http = http

    @classmethod
    async def open(
        cls,
        target: Target,
        *,
        connections: int,
        clock: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> Self:
        """Connect as ``target`` says; asks the service for its first model when none is named."""
        http = httpx.AsyncClient(
            base_url=target.base_url,
            headers={"authorization": f"Bearer {target.api_key.reveal().decode()}"},
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            timeout=TIMEOUT_S,
            transport=transport,
            trust_env=False,  # measure the service, not a proxy on the way to it
        )
        service = cls(http, target.model or "", clock)
        if target.model is None:
            try:
                service.model = await service._first_model()
            except BaseException:
                await http.aclose()
                raise
        return service

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def chat(
        self, messages: Sequence[Mapping[str, str]], *, max_tokens: int, cache: CacheMode
    ) -> Reply:
        """Exactly ``max_tokens`` tokens of a greedy answer, in one piece."""
        return await self._ask(CHAT_PATH, {"messages": messages}, max_tokens, cache)

    async def complete(
        self,
        token_ids: Sequence[int],
        *,
        max_tokens: int,
        cache: CacheMode,
        logit_bias: Mapping[str, int],
    ) -> Reply:
        """The same for a prompt of token ids, so that its length is exact."""
        body = {"prompt": token_ids, "logit_bias": logit_bias}
        return await self._ask(COMPLETIONS_PATH, body, max_tokens, cache)

    async def _ask(
        self, path: str, prompt: Mapping[str, object], max_tokens: int, cache: CacheMode
    ) -> Reply:
        body = wire.request_body(self.model, prompt, max_tokens, cache)
        started = self.clock()
        try:
            response = await self._http.post(path, json=body)
        except httpx.HTTPError as error:
            raise RequestFailed(path, _words(error)) from error
        latency_s = self.clock() - started
        _expect_ok(path, response)
        usage = wire.parse(path, wire.Answer, response.content).usage
        cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
        return Reply(latency_s, usage.prompt_tokens, cached, usage.completion_tokens)

    async def _first_model(self) -> str:
        path = MODELS_PATH
        try:
            response = await self._http.get(path)
        except httpx.HTTPError as error:
            raise RequestFailed(path, _words(error)) from error
        _expect_ok(path, response)
        models = wire.parse(path, wire.Models, response.content).data
        if not models:
            raise RequestFailed(path, "the service lists no model")
        return models[0].id


def _expect_ok(path: str, response: httpx.Response) -> None:
    if not response.is_success:
        raise RequestFailed(path, f"{response.status_code} {response.text[:500]}")


def _words(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
