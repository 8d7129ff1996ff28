"""One session of many rounds: every prompt is the whole conversation so far.

Prompts are token ids, so lengths are exact: the answer is pinned to one known token by
``logit_bias``, because a client cannot read back the ids of what it was answered. The ids are
ones that every vocabulary has; what they say changes nothing about the cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deployments.bench.statistics import median
from freehold.protocol import CacheMode

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from deployments.bench.client import Reply, Service
    from deployments.bench.progress import Progress

TOKEN_IDS = range(100, 250)
ANSWER_TOKEN_ID = 99
PIN = {str(ANSWER_TOKEN_ID): 100}


@dataclass(frozen=True, slots=True)
class RoundsPlan:
    """Defaults: ten rounds, 2,000 tokens growing by 200, the answer's 16 included."""

    rounds: int = 10
    start_tokens: int = 2000
    growth_tokens: int = 200
    output_tokens: int = 16
    sessions: int = 3


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """One session in one mode; lists have an entry a round."""

    prefill_tokens: int
    elapsed_s: float
    computed_tokens: tuple[int, ...]
    latency_s: tuple[float, ...]

    @classmethod
    def of(cls, replies: Sequence[Reply]) -> SessionFigures:
        computed = tuple(reply.computed_tokens for reply in replies)
        latency_s = tuple(reply.latency_s for reply in replies)
        return cls(sum(computed), sum(latency_s), computed, latency_s)


@dataclass(frozen=True, slots=True)
class RoundsResult:
    """Medians over the sessions; ``speedup`` is of a whole session, end to end."""

    prefill_tokens_with: float
    prefill_tokens_without: float
    speedup: float
    elapsed_s_with: float
    elapsed_s_without: float
    sessions_with: tuple[SessionFigures, ...]
    sessions_without: tuple[SessionFigures, ...]

    @classmethod
    def of(
        cls, sessions_with: Sequence[SessionFigures], sessions_without: Sequence[SessionFigures]
    ) -> RoundsResult:
        pairs = zip(sessions_without, sessions_with, strict=True)
        return cls(
            prefill_tokens_with=median([s.prefill_tokens for s in sessions_with]),
            prefill_tokens_without=median([s.prefill_tokens for s in sessions_without]),
            speedup=median([without.elapsed_s / reuse.elapsed_s for without, reuse in pairs]),
            elapsed_s_with=median([s.elapsed_s for s in sessions_with]),
            elapsed_s_without=median([s.elapsed_s for s in sessions_without]),
            sessions_with=tuple(sessions_with),
            sessions_without=tuple(sessions_without),
        )


async def run_rounds(
    service: Service, plan: RoundsPlan, rng: random.Random, progress: Progress
) -> RoundsResult:
    """Sessions one after another; in each, every round is asked with reuse and without."""
    progress.phase("warm-up", 2)
    for mode in (CacheMode.ON, CacheMode.OFF):
        await _ask(service, _tokens(rng, plan.start_tokens), plan, mode)
        progress.advance()

    sessions_with: list[SessionFigures] = []
    sessions_without: list[SessionFigures] = []
    for number in range(plan.sessions):
        progress.phase(f"session {number + 1}", 2 * plan.rounds)
        reuse, no_reuse = await _session(service, plan, rng, progress)
        sessions_with.append(SessionFigures.of(reuse))
        sessions_without.append(SessionFigures.of(no_reuse))
    return RoundsResult.of(sessions_with, sessions_without)


async def _session(
    service: Service, plan: RoundsPlan, rng: random.Random, progress: Progress
) -> tuple[list[Reply], list[Reply]]:
    """The same conversation in both modes, round by round; the one without leaves no trace."""
    conversation = _tokens(rng, plan.start_tokens)
    answer = [ANSWER_TOKEN_ID] * plan.output_tokens
    replies: dict[CacheMode, list[Reply]] = {CacheMode.ON: [], CacheMode.OFF: []}
    for _ in range(plan.rounds):
        for mode, so_far in replies.items():
            so_far.append(await _ask(service, conversation, plan, mode))
            progress.advance()
        conversation += answer + _tokens(rng, plan.growth_tokens - plan.output_tokens)
    return replies[CacheMode.ON], replies[CacheMode.OFF]


async def _ask(
    service: Service, conversation: Sequence[int], plan: RoundsPlan, mode: CacheMode
) -> Reply:
    return await service.complete(
        conversation, max_tokens=plan.output_tokens, cache=mode, logit_bias=PIN
    )


def _tokens(rng: random.Random, count: int) -> list[int]:
    return rng.choices(TOKEN_IDS, k=count)
