"""The engine of a replica: ``protocol.Engine`` over a core that steps in a thread of its own.

Decides nothing; it joins asyncio readers to the step thread and gives every request's blocks back
when its reader leaves, however it leaves.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from freehold.engine.core import EngineCore
from freehold.engine.sampler import Sampler, argmax
from freehold.engine.step_thread import StepThread
from freehold.engine.stream import Stream
from freehold.engine.vocabulary import Vocabulary
from freehold.protocol import Incarnation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from freehold.engine.batch import Executor
    from freehold.engine.config import EngineConfig
    from freehold.engine.sampler import Argmax
    from freehold.engine.vocabulary import Tokenizer
    from freehold.kv.events import KVEvent
    from freehold.protocol import (
        AccountId,
        Delta,
        EpochId,
        GenerateRequest,
        ModelCard,
        ReplicaReport,
        RequestId,
        Usage,
    )


class LocalEngine:
    """Implements ``protocol.Engine``. Any number of event loops and threads may use one."""

    def __init__(
        self,
        executor: Executor,
        tokenizer: Tokenizer,
        config: EngineConfig,
        card: ModelCard,
        *,
        best_token: Argmax = argmax,
        incarnation: Incarnation | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_events: Callable[[Sequence[KVEvent]], None] = lambda _: None,
    ) -> None:
        """``best_token`` is a faster argmax where there is one.

        Raises:
            ValueError: ``config`` and ``card`` disagree about the pool.
            UnsupportedModel: the tokenizer decodes in a way that is not known here.
        """
        pool = (config.num_blocks, config.block_size)
        if pool != (card.num_blocks, card.block_size):
            message = f"the card's pool {card.num_blocks, card.block_size} is not {pool}"
            raise ValueError(message)
        self._card = card
        core = EngineCore(
            executor,
            Vocabulary(tokenizer),
            config,
            card,
            clock=clock,
            entropy=lambda: secrets.randbits(64),
            sampler=Sampler(best_token),
        )
        self._steps = StepThread(
            core,
            config,
            incarnation=incarnation or Incarnation(secrets.token_hex(16)),
            clock=clock,
            on_events=on_events,
        )

    def card(self) -> ModelCard:
        return self._card

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Delta]:
        """See ``protocol.Engine``; also raises StepFailed when the device failed under it."""
        stream = Stream(request.request_id)
        self._steps.submit(stream, request)
        try:
            while (delta := await stream.next()) is not None:
                yield delta
        finally:
            if not stream.is_over:
                self._steps.cancel(stream)

    def abort(self, request_id: RequestId) -> None:
        self._steps.abort(request_id)

    def purge(self, account_id: AccountId, keep_epoch_id: EpochId | None) -> int:
        """Blocks for up to a step: call it from a thread, not from an event loop."""
        return self._steps.purge(account_id, keep_epoch_id)

    def report(self) -> ReplicaReport:
        return self._steps.report()

    def final_usage(self, request_id: RequestId) -> Usage | None:
        return self._steps.final_usages.get(request_id)

    def close(self, drain_s: float = 0.0) -> None:
        """Stop: no new requests, ``drain_s`` for the running ones, abort what is left. Blocks."""
        self._steps.close(drain_s)
