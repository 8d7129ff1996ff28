"""The demo model behind the whole chain: it must not only answer, it must make sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from openai import OpenAI

if TYPE_CHECKING:
    from collections.abc import Generator

    from openai.types.chat import ChatCompletionMessageParam

    from tests.support.service import RunningService

pytestmark = [pytest.mark.service, pytest.mark.smollm2]

QUESTION = "What is the capital of France?"
SYSTEM = "You are a geography teacher. Answer in one short sentence. " * 8


@pytest.fixture
def client(smollm2_service: RunningService) -> Generator[OpenAI]:
    with OpenAI(
        base_url=smollm2_service.base_url,
        api_key=smollm2_service.tenants[0].api_key,
        max_retries=0,
    ) as client:
        yield client


def conversation(system: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "system", "content": system}, {"role": "user", "content": QUESTION}]


def test_it_knows_the_capital_of_france_cold_and_cached(
    client: OpenAI, smollm2_service: RunningService
) -> None:
    answers = [
        client.chat.completions.create(
            model=smollm2_service.model,
            messages=conversation(SYSTEM),
            max_tokens=24,
            temperature=0,
        )
        for _ in range(2)
    ]

    cold, warm = answers
    assert "Paris" in (cold.choices[0].message.content or "")
    assert "Paris" in (warm.choices[0].message.content or "")
    assert cold.usage is not None
    assert cold.usage.prompt_tokens_details is not None
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert warm.usage is not None
    assert warm.usage.prompt_tokens_details is not None
    assert (warm.usage.prompt_tokens_details.cached_tokens or 0) > 64


def test_it_ends_by_itself(client: OpenAI, smollm2_service: RunningService) -> None:
    stream = client.chat.completions.create(
        model=smollm2_service.model,
        messages=conversation("Answer with one word."),
        max_tokens=200,
        temperature=0,
        stream=True,
    )
    reasons = [c.finish_reason for chunk in stream for c in chunk.choices if c.finish_reason]

    assert reasons == ["stop"]
