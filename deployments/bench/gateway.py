"""What the way to the engine costs: one client's time to first token minus the engine's own.

The gateway says in ``Server-Timing`` what each of its stages took, and the engine's time from its
queue to its first delta. What is left over is the proxy, the network and the client itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deployments.bench.client import CHAT_PATH
from deployments.bench.statistics import Latency, median
from deployments.bench.text import Ruler, question
from deployments.bench.wire import RequestFailed

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from deployments.bench.client import Service
    from deployments.bench.first_token import FirstToken, FirstTokens
    from deployments.bench.progress import Progress

ENGINE, TOTAL = "engine", "total"
"""Of the header: the engine's part, and all of the gateway's; the others are its stages."""
PROXY = "proxy"


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """Defaults: a prompt of 128 tokens, one client, a new prompt every time."""

    prompt_tokens: int = 128
    output_tokens: int = 4
    requests: int = 200
    warmup: int = 20


@dataclass(frozen=True, slots=True)
class GatewayResult:
    """Milliseconds. ``stages`` are medians of each stage, in order; the last is what is left."""

    overhead_p50_ms: float
    overhead_p99_ms: float
    ttft_p50_ms: float
    engine_p50_ms: float
    stages: Mapping[str, float]
    ttft: Latency

    @classmethod
    def of(cls, samples: Sequence[FirstToken]) -> GatewayResult:
        overhead = Latency.of([sample.ttft_s - sample.stages_s[ENGINE] for sample in samples])
        names = [name for name in samples[0].stages_s if name not in {ENGINE, TOTAL}]
        stages = {
            name: median([sample.stages_s.get(name, 0.0) for sample in samples]) * 1e3
            for name in names
        }
        stages[PROXY] = median([_outside(sample) for sample in samples]) * 1e3
        ttft = Latency.of([sample.ttft_s for sample in samples])
        return cls(
            overhead_p50_ms=overhead.p50_s * 1e3,
            overhead_p99_ms=overhead.p99_s * 1e3,
            ttft_p50_ms=ttft.p50_s * 1e3,
            engine_p50_ms=median([sample.stages_s[ENGINE] for sample in samples]) * 1e3,
            stages=stages,
            ttft=ttft,
        )


def _outside(sample: FirstToken) -> float:
    """What no stage of the gateway and not the engine accounts for."""
    return sample.ttft_s - sum(s for name, s in sample.stages_s.items() if name != TOTAL)


async def run_gateway(
    service: Service,
    plan: GatewayPlan,
    rng: random.Random,
    progress: Progress,
    streams: FirstTokens,
) -> GatewayResult:
    """One request after another; the first ``plan.warmup`` are not counted.

    Raises:
        RequestFailed: the service does not say what its engine took.
    """
    ruler = await Ruler.measure(service, rng)
    characters = ruler.characters(plan.prompt_tokens - ruler.template_tokens)
    samples: list[FirstToken] = []
    for name, count in (("warm-up", plan.warmup), ("measuring", plan.requests)):
        progress.phase(name, count)
        samples.clear()
        for _ in range(count):
            message = {"role": "user", "content": question(rng, characters)}
            sample = await asyncio.to_thread(
                streams.ask, service.model, [message], max_tokens=plan.output_tokens
            )
            if ENGINE not in sample.stages_s:
                reason = f"no {ENGINE!r} in the server-timing header: nothing to subtract"
                raise RequestFailed(CHAT_PATH, reason)
            samples.append(sample)
            progress.advance()
    return GatewayResult.of(samples)
