"""The three workloads against a fake service, whose clock makes every figure exact."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from deployments.bench.chatbot import ChatbotPlan, run_chatbot
from deployments.bench.client import Service
from deployments.bench.first_token import StreamClient
from deployments.bench.gateway import PROXY, GatewayPlan, run_gateway
from deployments.bench.rounds import RoundsPlan, run_rounds
from deployments.bench.target import Target
from deployments.bench.wire import RequestFailed
from freehold.secret import Secret
from tests.support.fake_openai import SECONDS_A_TOKEN, FakeOpenAI

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


TARGET = Target("http://fake/v1", Secret(b"key"), "fake")


class CountedProgress:
    """Every phase must end with as many steps as it announced."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, int]] = []
        self.steps: list[int] = []

    def phase(self, name: str, total: int) -> None:
        self.phases.append((name, total))
        self.steps.append(0)

    def advance(self) -> None:
        self.steps[-1] += 1

    @property
    def complete(self) -> bool:
        return self.steps == [total for _, total in self.phases]


@asynccontextmanager
async def service_of(fake: FakeOpenAI) -> AsyncGenerator[Service]:
    async with await Service.open(
        TARGET, connections=8, clock=fake.clock, transport=fake.transport
    ) as service:
        yield service


def streams_of(fake: FakeOpenAI) -> StreamClient:
    return StreamClient(TARGET, fake.clock, fake.connection())


async def test_rounds_counts_what_the_design_promises() -> None:
    fake, progress = FakeOpenAI(), CountedProgress()
    async with service_of(fake) as service:
        result = await run_rounds(service, RoundsPlan(), random.Random(1), progress)

    # 2,000 tokens are 125 blocks; every later round computes its 200 new tokens and the part of
    # the round before that did not fill a block.
    assert result.prefill_tokens_without == 29_000
    assert 3800 <= result.prefill_tokens_with <= 4200
    decode = 10 * 16
    expected = (29_000 + decode) / (result.prefill_tokens_with + decode)
    assert result.speedup == pytest.approx(expected)
    assert result.elapsed_s_without == pytest.approx((29_000 + decode) * SECONDS_A_TOKEN)
    assert progress.complete


async def test_a_round_repeats_the_one_before_with_its_answer() -> None:
    fake = FakeOpenAI()
    plan = RoundsPlan(rounds=3, start_tokens=50, growth_tokens=20, output_tokens=5, sessions=1)
    async with service_of(fake) as service:
        await run_rounds(service, plan, random.Random(1), CountedProgress())

    prompts: list[list[int]] = [body["prompt"] for body in fake.bodies[2:]]
    assert [len(prompt) for prompt in prompts] == [50, 50, 70, 70, 90, 90]
    assert [body.get("cache", "on") for body in fake.bodies] == ["on", "off"] * 4
    first, second = prompts[0], prompts[2]
    (pinned,) = {int(token) for body in fake.bodies for token in body["logit_bias"]}
    assert second[:55] == first + [pinned] * 5
    assert {token for prompt in prompts for token in prompt} <= set(range(256))


async def test_sessions_share_nothing() -> None:
    fake = FakeOpenAI()
    async with service_of(fake) as service:
        result = await run_rounds(
            service, RoundsPlan(sessions=3), random.Random(1), CountedProgress()
        )

    assert [session.computed_tokens[0] for session in result.sessions_with] == [2000] * 3


async def test_chatbot_compares_both_modes_in_turn() -> None:
    fake, progress = FakeOpenAI(), CountedProgress()
    plan = ChatbotPlan(concurrency=4, requests=12, rounds=2)
    async with service_of(fake) as service:
        result = await run_chatbot(service, plan, random.Random(1), progress)

    assert fake.max_in_flight == 4
    measured = fake.bodies[-48:]
    modes = [body.get("cache", "on") for body in measured]
    assert modes == (["on"] * 12 + ["off"] * 12) * 2
    assert result.no_reuse.cached_tokens == 0
    assert result.no_reuse.prompt_tokens / 24 == pytest.approx(2040, rel=0.02)
    assert result.hit_rate == pytest.approx(2000 / 2040, rel=0.02)
    assert result.throughput_ratio == pytest.approx(
        result.no_reuse.elapsed_s / result.reuse.elapsed_s
    )
    assert result.throughput_ratio > 10
    assert 0.9 < result.p99_reduction < 1
    assert progress.complete


async def test_no_question_is_asked_twice() -> None:
    fake = FakeOpenAI()
    plan = ChatbotPlan(concurrency=2, requests=20, rounds=2)
    async with service_of(fake) as service:
        await run_chatbot(service, plan, random.Random(1), CountedProgress())

    conversations = [body["messages"] for body in fake.bodies if len(body["messages"]) == 2]
    assert len({system["content"] for system, _ in conversations}) == 1
    questions = [user["content"] for _, user in conversations]
    assert len(set(questions)) == len(questions)


async def test_gateway_subtracts_the_engine_and_names_the_rest() -> None:
    fake = FakeOpenAI(
        server_timing="template;dur=0.25, route;dur=0.75, engine;dur=100, total;dur=102"
    )
    progress = CountedProgress()
    async with service_of(fake) as service:
        result = await run_gateway(
            service,
            GatewayPlan(requests=11, warmup=3),
            random.Random(1),
            progress,
            streams_of(fake),
        )

    assert result.ttft.count == 11
    assert list(result.stages) == ["template", "route", PROXY]
    assert result.stages["template"] == pytest.approx(0.25)
    assert result.overhead_p50_ms == pytest.approx(result.ttft_p50_ms - 100)
    assert result.stages[PROXY] == pytest.approx(result.overhead_p50_ms - 1)
    assert progress.complete


async def test_gateway_needs_to_know_the_engines_part() -> None:
    fake = FakeOpenAI(server_timing="template;dur=0.25")
    async with service_of(fake) as service:
        with pytest.raises(RequestFailed, match="engine"):
            await run_gateway(
                service, GatewayPlan(), random.Random(1), CountedProgress(), streams_of(fake)
            )
