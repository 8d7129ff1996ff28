"""The official client, unmodified, over HTTP."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import openai
import pytest

from deployments.gateway.ports import ReplicaLost
from freehold.errors import CapacityExceeded
from freehold.protocol import FinishReason
from tests.support.gateway import MODEL, GatewayWorld, listening, says

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from openai.types.chat import ChatCompletionMessageParam

    from freehold.protocol import Delta, GenerateRequest

MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Say hello. "}]},
]


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld()


@asynccontextmanager
async def sdk(world: GatewayWorld, key: str | None = None) -> AsyncGenerator[openai.AsyncOpenAI]:
    async with (
        listening(world.app) as url,
        openai.AsyncOpenAI(
            api_key=key or world.alice_key, base_url=f"{url}/v1", max_retries=0
        ) as client,
    ):
        yield client


async def test_chat(world: GatewayWorld) -> None:
    world.fleet.script = says("Hello", " there", cached=16)
    async with sdk(world) as client:
        answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES, n=2)

    assert [choice.message.content for choice in answer.choices] == ["Hello there"] * 2
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(world.fleet.opened[0].token_ids)
    assert answer.usage.completion_tokens == 4
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 16


async def test_chat_stream(world: GatewayWorld) -> None:
    world.fleet.script = says("你好", "🙂", finish_reason=FinishReason.LENGTH)
    async with sdk(world) as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
            max_completion_tokens=5,
        )
        chunks = [chunk async for chunk in stream]

    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == "你好🙂"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == []
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert world.fleet.opened[0].sampling.max_tokens == 5


async def test_completions_in_every_form(world: GatewayWorld) -> None:
    prompts: list[tuple[str | list[str] | list[int] | list[list[int]], int]] = [
        ("Once", 1),
        (["Once", "Twice"], 2),
        ([70, 80], 1),
        ([[70], [80, 81]], 2),
    ]
    async with sdk(world) as client:
        for prompt, num_choices in prompts:
            answer = await client.completions.create(model=MODEL, prompt=prompt, logprobs=1)

            assert [choice.text for choice in answer.choices] == ["Hello world"] * num_choices
            assert answer.choices[0].logprobs is not None
            assert answer.choices[0].logprobs.text_offset == [0, 5]
            assert answer.usage is not None
            assert answer.usage.completion_tokens == 2 * num_choices

    assert world.fleet.opened[-1].token_ids == (80, 81)


async def test_completions_stream_with_echo(world: GatewayWorld) -> None:
    async with sdk(world) as client:
        stream = await client.completions.create(
            model=MODEL, prompt=["A", "B"], stream=True, echo=True
        )
        texts = ["", ""]
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text

    assert texts == ["AHello world", "BHello world"]


async def test_models(world: GatewayWorld) -> None:
    async with sdk(world) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-9")


async def test_extensions_go_in_the_extra_body(world: GatewayWorld) -> None:
    async with sdk(world) as client:
        await client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            prompt_cache_key="session-7",
            extra_body={"cache": "no-store", "cache_salt": "user-1", "top_k": 5},
        )

    request = world.fleet.opened[0]
    assert request.cache.value == "no-store"
    assert request.sampling.top_k == 5
    assert world.fleet.hints[0].prompt_cache_key == "session-7"


async def test_errors_are_the_clients_own(world: GatewayWorld) -> None:
    async with sdk(world) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES, top_p=7)
        assert caught.value.param == "top_p"
        assert caught.value.code == "invalid_value"
        assert caught.value.request_id

        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(
                model=MODEL,
                messages=MESSAGES,
                tools=[{"type": "function", "function": {"name": "f"}}],
            )
        assert caught.value.code == "unsupported_parameter"

        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="gpt-9", messages=MESSAGES)

        world.fleet.refusal = CapacityExceeded("the queue", 2)
        with pytest.raises(openai.InternalServerError) as unavailable:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        assert unavailable.value.status_code == 503
        assert unavailable.value.response.headers["retry-after"] == "2"


async def test_without_a_good_key_nothing(world: GatewayWorld) -> None:
    async with sdk(world, key="fh_wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(model=MODEL, messages=MESSAGES)
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()


async def test_a_stream_that_breaks_raises(world: GatewayWorld) -> None:
    async def breaks(request: GenerateRequest) -> AsyncGenerator[Delta]:
        async for delta in says("Hel", "lo")(request):
            yield delta
            raise ReplicaLost(reason="killed")

    world.fleet.script = breaks
    async with sdk(world) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        texts = [(await anext(stream)).choices[0].delta.content for _ in range(2)]
        with pytest.raises(openai.APIError, match="replica was lost"):
            await anext(stream)

    assert texts == ["", "Hel"]


async def test_raw_response_carries_ids_and_timing(world: GatewayWorld) -> None:
    async with sdk(world) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=MESSAGES, extra_headers={"x-client-request-id": "mine-1"}
        )

    assert raw.request_id
    assert raw.headers["x-client-request-id"] == "mine-1"
    assert raw.headers.get_list("x-request-id") == [raw.request_id]
    stages = {part.split(";")[0].strip() for part in raw.headers["server-timing"].split(",")}
    assert stages >= {
        "authenticate",
        "template",
        "tokenize",
        "hash",
        "admit",
        "route",
        "hand_over",
        "engine",
    }
