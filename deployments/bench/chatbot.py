"""Many users of one chatbot: a long system prompt that all share, a short question each.

A closed loop runs in turn with reuse and with reuse off, on the same service in the same run, so
that the ratio does not depend on the day's machine. What the shared prefix saves is the ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from deployments.bench.closed_loop import closed_loop
from deployments.bench.statistics import Latency
from deployments.bench.text import Ruler, handbook, question
from freehold.protocol import CacheMode

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from deployments.bench.client import Reply, Service
    from deployments.bench.progress import Progress


@dataclass(frozen=True, slots=True)
class ChatbotPlan:
    """Defaults: a support desk's prompt, and a run of under four minutes on two cores."""

    system_tokens: int = 2000
    question_tokens: int = 40
    output_tokens: int = 32
    concurrency: int = 32
    requests: int = 64
    """Per mode and round."""
    rounds: int = 2


@dataclass(frozen=True, slots=True)
class ModeFigures:
    """One mode, over all its rounds."""

    elapsed_s: float
    requests_per_s: float
    output_tokens_per_s: float
    latency: Latency
    prompt_tokens: int
    cached_tokens: int

    @classmethod
    def of(cls, replies: Sequence[Reply], elapsed_s: float) -> ModeFigures:
        return cls(
            elapsed_s=elapsed_s,
            requests_per_s=len(replies) / elapsed_s,
            output_tokens_per_s=sum(reply.output_tokens for reply in replies) / elapsed_s,
            latency=Latency.of([reply.latency_s for reply in replies]),
            prompt_tokens=sum(reply.prompt_tokens for reply in replies),
            cached_tokens=sum(reply.cached_tokens for reply in replies),
        )


@dataclass(frozen=True, slots=True)
class ChatbotResult:
    """``throughput_ratio`` and ``p99_reduction`` compare reuse with no reuse."""

    throughput_ratio: float
    p50_reduction: float
    p99_reduction: float
    hit_rate: float
    """Prompt tokens found in the cache, of all with reuse on."""
    reuse: ModeFigures
    no_reuse: ModeFigures

    @classmethod
    def of(cls, reuse: ModeFigures, no_reuse: ModeFigures) -> ChatbotResult:
        return cls(
            throughput_ratio=reuse.requests_per_s / no_reuse.requests_per_s,
            p50_reduction=1 - reuse.latency.p50_s / no_reuse.latency.p50_s,
            p99_reduction=1 - reuse.latency.p99_s / no_reuse.latency.p99_s,
            hit_rate=reuse.cached_tokens / reuse.prompt_tokens,
            reuse=reuse,
            no_reuse=no_reuse,
        )


async def run_chatbot(
    service: Service, plan: ChatbotPlan, rng: random.Random, progress: Progress
) -> ChatbotResult:
    """Warm up, then ``plan.rounds`` pairs of rounds: reuse, no reuse, reuse, …"""
    desk = await _Desk.prepare(service, plan, rng)
    progress.phase("warm-up", plan.concurrency + 2)
    # One request computes the prefix; the burst then lets the router spread it to every replica.
    await desk.round(CacheMode.ON, 1, progress)
    await desk.round(CacheMode.ON, plan.concurrency, progress)
    await desk.round(CacheMode.OFF, 1, progress)

    modes = (CacheMode.ON, CacheMode.OFF)
    replies: dict[CacheMode, list[Reply]] = {mode: [] for mode in modes}
    elapsed_s = dict.fromkeys(modes, 0.0)
    for number in range(plan.rounds):
        for mode in modes:
            progress.phase(f"round {number + 1}, reuse {mode}", plan.requests)
            started = service.clock()
            replies[mode] += await desk.round(mode, plan.requests, progress)
            elapsed_s[mode] += service.clock() - started
    reuse, no_reuse = (ModeFigures.of(replies[mode], elapsed_s[mode]) for mode in modes)
    return ChatbotResult.of(reuse, no_reuse)


@dataclass(frozen=True, slots=True)
class _Desk:
    """The shared prompt, and users who never ask the same twice."""

    service: Service
    plan: ChatbotPlan
    rng: random.Random
    system: str
    question_characters: int

    @classmethod
    async def prepare(cls, service: Service, plan: ChatbotPlan, rng: random.Random) -> _Desk:
        ruler = await Ruler.measure(service, rng)
        system_characters = ruler.characters(plan.system_tokens - ruler.template_tokens)
        return cls(
            service,
            plan,
            rng,
            handbook(rng, system_characters),
            ruler.characters(plan.question_tokens),
        )

    async def round(self, mode: CacheMode, count: int, progress: Progress) -> list[Reply]:
        jobs = [
            partial(
                self.service.chat,
                [
                    {"role": "system", "content": self.system},
                    {"role": "user", "content": question(self.rng, self.question_characters)},
                ],
                max_tokens=self.plan.output_tokens,
                cache=mode,
            )
            for _ in range(count)
        ]
        return await closed_loop(jobs, self.plan.concurrency, progress.advance)
