"""A fleet of one real engine in this process, over the fake executor: no model, no Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from deployments.gateway.ports import Readiness, RouteInfo
from freehold.engine.engine import LocalEngine
from tests.support.engines import make_config
from tests.support.fake_executor import FakeExecutor
from tests.support.gateway import make_card
from tests.support.tiny_models import make_tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from typing import Any

    from deployments.gateway.ports import RouteHint
    from freehold.protocol import Delta, GenerateRequest, ModelCard


class LocalFleet:
    """Close it: the engine has a thread."""

    def __init__(self, **config: Any) -> None:
        defaults = {"num_blocks": 64, "block_size": 16, "max_num_seqs": 8, "max_step_tokens": 128}
        settings = make_config(**(defaults | config))
        card = make_card(block_size=settings.block_size, num_blocks=settings.num_blocks)
        executor = FakeExecutor(settings.num_blocks, settings.block_size, card.vocab_size)
        self.engine = LocalEngine(executor, make_tokenizer(), settings, card)

    def cards(self) -> Sequence[ModelCard]:
        return [self.engine.card()]

    def ready(self) -> Readiness:
        healthy = self.engine.report().healthy
        return Readiness(healthy, () if healthy else ("the engine is unwell",))

    async def open(self, request: GenerateRequest, hint: RouteHint) -> LocalStream:
        return LocalStream(self.engine, request)

    def close(self) -> None:
        self.engine.close()


class LocalStream:
    def __init__(self, engine: LocalEngine, request: GenerateRequest) -> None:
        self.route = RouteInfo("local", 0, 0.0, "only replica")
        self._deltas: AsyncGenerator[Delta] = engine.generate(request)  # type: ignore[assignment]  # it is one

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        return await anext(self._deltas)

    async def aclose(self) -> None:
        await self._deltas.aclose()
