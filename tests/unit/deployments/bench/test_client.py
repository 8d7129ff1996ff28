from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from deployments.bench.client import Service
from deployments.bench.target import Target
from deployments.bench.wire import RequestFailed
from freehold.protocol import CacheMode
from freehold.secret import Secret
from tests.support.fake_openai import TEMPLATE_TOKENS, FakeOpenAI

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

KEY = "fh_secret"
HELLO = [{"role": "user", "content": "x" * 160}]


@asynccontextmanager
async def service_of(fake: FakeOpenAI, model: str | None = None) -> AsyncGenerator[Service]:
    target = Target("http://fake/v1", Secret(KEY.encode()), model)
    async with await Service.open(
        target, connections=1, clock=fake.clock, transport=fake.transport
    ) as service:
        yield service


async def test_the_first_listed_model_is_taken_when_none_is_named() -> None:
    fake = FakeOpenAI()
    async with service_of(fake) as service:
        assert service.model == "fake"
    assert fake.authorizations == [f"Bearer {KEY}"]


async def test_a_reply_carries_time_and_tokens() -> None:
    fake = FakeOpenAI()
    async with service_of(fake, "m") as service:
        cold = await service.chat(HELLO, max_tokens=2, cache=CacheMode.ON)
        warm = await service.chat(HELLO, max_tokens=2, cache=CacheMode.ON)

    prompt = TEMPLATE_TOKENS + 40
    assert (cold.prompt_tokens, cold.cached_tokens, cold.output_tokens) == (prompt, 0, 2)
    assert cold.latency_s == pytest.approx((prompt + 2) / 1000)
    assert warm.computed_tokens == 1
    assert warm.latency_s == pytest.approx(3 / 1000)


async def test_the_cache_field_is_sent_only_to_turn_reuse_off() -> None:
    fake = FakeOpenAI()
    async with service_of(fake, "m") as service:
        for mode in (CacheMode.ON, CacheMode.OFF):
            await service.complete([1, 2, 3], max_tokens=1, cache=mode, logit_bias={"7": 100})

    on, off = fake.bodies
    assert "cache" not in on
    assert off["cache"] == "off"
    assert off["logit_bias"] == {"7": 100}
    assert (on["model"], on["ignore_eos"], on["temperature"]) == ("m", True, 0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx.Response(503, text="too many"), "503 too many"),
        (httpx.Response(200, text="<html>"), "another shape"),
    ],
)
async def test_an_answer_that_cannot_be_counted_is_an_error_without_the_key(
    answer: httpx.Response, words: str
) -> None:
    fake = FakeOpenAI()
    async with service_of(fake, "m") as service:
        fake.refuse_with = answer
        with pytest.raises(RequestFailed, match=words) as caught:
            await service.chat(HELLO, max_tokens=2, cache=CacheMode.ON)

    assert KEY not in str(caught.value)


async def test_an_unreachable_service_is_named_by_what_went_wrong() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        message = "connection refused"
        raise httpx.ConnectError(message, request=request)

    target = Target("http://fake/v1", Secret(KEY.encode()))
    with pytest.raises(RequestFailed, match="connection refused"):
        await Service.open(
            target, connections=1, clock=lambda: 0.0, transport=httpx.MockTransport(refuse)
        )
