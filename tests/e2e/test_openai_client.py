"""The official client, unmodified, against the real service: what it promises is what it gets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI
    from openai.types.chat import ChatCompletionMessageParam
    from openai.types.completion_usage import CompletionUsage

    from tests.support.service import RunningService

pytestmark = pytest.mark.service

IGNORE_EOS = {"ignore_eos": True}
EOS = "2"
SPECIALS = ("0", "1", EOS)
"""Ids of the tiny model's special tokens, whose names are no part of the text."""


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def assistant(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "assistant", "content": text}]


def cached(usage: CompletionUsage | None) -> int:
    """Present in every usage, 0 included."""
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens is not None
    return usage.prompt_tokens_details.cached_tokens


def test_the_served_model_is_listed(acme: OpenAI, service: RunningService) -> None:
    assert [model.id for model in acme.models.list()] == [service.model]
    assert acme.models.retrieve(service.model).object == "model"


class TestChat:
    def test_an_answer_has_its_length_reason_and_usage(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        answer = acme.chat.completions.create(
            model=service.model, messages=user(new_text), max_tokens=8, extra_body=IGNORE_EOS
        )

        (choice,) = answer.choices
        assert choice.finish_reason == "length"
        assert choice.message.role == "assistant"
        assert answer.object == "chat.completion"
        assert answer.model == service.model
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 8
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8
        assert cached(answer.usage) == 0

    def test_a_stream_says_the_same_as_one_answer(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        whole = acme.chat.completions.create(
            model=service.model, messages=user(new_text), max_tokens=24, temperature=0
        )
        chunks = list(
            acme.chat.completions.create(
                model=service.model,
                messages=user(new_text),
                max_tokens=24,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
        )

        *spoken, last = chunks
        text = "".join(choice.delta.content or "" for c in spoken for choice in c.choices)
        assert text == whole.choices[0].message.content
        assert spoken[0].choices[0].delta.role == "assistant"
        assert spoken[-1].choices[0].finish_reason == whole.choices[0].finish_reason
        assert last.choices == []
        assert last.usage is not None
        assert whole.usage is not None
        assert last.usage.completion_tokens == whole.usage.completion_tokens
        assert cached(last.usage) > 0
        assert len({chunk.id for chunk in chunks}) == 1

    def test_a_stream_has_no_usage_unless_asked(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        chunks = list(
            acme.chat.completions.create(
                model=service.model, messages=user(new_text), max_tokens=4, stream=True
            )
        )

        assert all(chunk.usage is None for chunk in chunks)
        assert all(chunk.choices for chunk in chunks)

    def test_a_conversation_reuses_its_earlier_turns(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        turns = user(new_text)
        hits: list[int] = []
        for _ in range(3):
            answer = acme.chat.completions.create(
                model=service.model, messages=turns, max_tokens=8, temperature=0
            )
            hits.append(cached(answer.usage))
            said = answer.choices[0].message.content or ""
            turns += assistant(said) + user("and then? " * 8)

        assert hits[0] == 0
        assert 0 < hits[1] < hits[2]

    def test_several_choices_are_told_apart_and_counted_together(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        answer = acme.chat.completions.create(
            model=service.model,
            messages=user(new_text),
            n=3,
            max_tokens=8,
            temperature=2,
            seed=1,
            extra_body=IGNORE_EOS,
        )

        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert len({choice.message.content for choice in answer.choices}) > 1
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 24

    def test_several_choices_can_be_streamed(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        finished: list[int] = []
        for chunk in acme.chat.completions.create(
            model=service.model, messages=user(new_text), n=3, max_tokens=6, stream=True
        ):
            finished += [c.index for c in chunk.choices if c.finish_reason is not None]

        assert sorted(finished) == [0, 1, 2]

    def test_logprobs_come_with_their_alternatives(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        answer = acme.chat.completions.create(
            model=service.model,
            messages=user(new_text),
            max_tokens=5,
            temperature=0,
            logprobs=True,
            top_logprobs=3,
            extra_body=IGNORE_EOS,
        )

        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        assert len(logprobs.content) == 5
        for position in logprobs.content:
            best = position.top_logprobs
            assert len(best) == 3
            assert position.logprob <= 0
            assert position.token == best[0].token  # greedy takes the most likely one
            assert [b.logprob for b in best] == sorted((b.logprob for b in best), reverse=True)
            assert sum(math.exp(b.logprob) for b in best) <= 1 + 1e-3

    def test_a_stop_string_ends_the_answer_in_front_of_it(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        def ask(stop: str | None) -> tuple[str, str]:
            choice = acme.chat.completions.create(
                model=service.model,
                messages=user(new_text),
                max_tokens=40,
                temperature=0,
                stop=stop,
                extra_body=IGNORE_EOS,
            ).choices[0]
            return choice.message.content or "", choice.finish_reason

        whole, _ = ask(None)
        stop = whole[len(whole) // 2 :][:3]
        text, reason = ask(stop)

        assert reason == "stop"
        assert text == whole[: whole.index(stop)]

    def test_a_seed_makes_a_sampled_answer_repeatable(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        texts = [
            acme.chat.completions.create(
                model=service.model,
                messages=user(new_text),
                max_tokens=16,
                temperature=1.5,
                seed=seed,
                extra_body=IGNORE_EOS,
            )
            .choices[0]
            .message.content
            for seed in (7, 7, 8)
        ]

        assert texts[0] == texts[1] != texts[2]

    def test_the_newer_name_of_the_length_works_too(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        answer = acme.chat.completions.create(
            model=service.model,
            messages=user(new_text),
            max_completion_tokens=3,
            extra_body=IGNORE_EOS,
        )

        assert answer.usage is not None
        assert answer.usage.completion_tokens == 3

    def test_text_in_parts_is_text(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        parts = acme.chat.completions.create(
            model=service.model,
            messages=[{"role": "user", "content": [{"type": "text", "text": new_text}]}],
            max_tokens=8,
            temperature=0,
        )
        plain = acme.chat.completions.create(
            model=service.model, messages=user(new_text), max_tokens=8, temperature=0
        )

        assert parts.choices[0].message.content == plain.choices[0].message.content

    def test_no_broken_character_is_ever_streamed(
        self, acme: OpenAI, service: RunningService
    ) -> None:
        """A random model speaks bytes; half of a character must wait for its other half."""
        stream = acme.chat.completions.create(
            model=service.model,
            messages=user("请用中文回答 🙂"),
            max_tokens=60,
            temperature=1.5,
            seed=3,
            logit_bias=dict.fromkeys(SPECIALS, -100),
            stream=True,
            logprobs=True,
            extra_body=IGNORE_EOS,
        )
        text, spoken = "", b""
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for token in (choice.logprobs.content or []) if choice.logprobs else []:
                    spoken += bytes(token.bytes or [])

        assert text == spoken.decode(errors="replace")


class TestCompletions:
    def test_text_is_continued(self, acme: OpenAI, service: RunningService, new_text: str) -> None:
        answer = acme.completions.create(
            model=service.model, prompt=new_text, max_tokens=8, extra_body=IGNORE_EOS
        )

        assert answer.object == "text_completion"
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 8
        assert cached(answer.usage) == 0

    def test_a_prompt_of_token_ids_is_exactly_as_long(
        self, acme: OpenAI, service: RunningService
    ) -> None:
        answer = acme.completions.create(
            model=service.model, prompt=list(range(100, 133)), max_tokens=2
        )

        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 33

    @pytest.mark.parametrize(
        "prompts", [["one", "two", "three"], [[100, 101], [102], [103, 104, 105]]]
    )
    def test_a_list_of_prompts_gets_a_choice_each(
        self, acme: OpenAI, service: RunningService, prompts: list[str] | list[list[int]]
    ) -> None:
        together = acme.completions.create(
            model=service.model, prompt=prompts, max_tokens=6, temperature=0
        )
        alone = [
            acme.completions.create(model=service.model, prompt=prompt, max_tokens=6, temperature=0)
            for prompt in prompts
        ]

        assert [choice.index for choice in together.choices] == [0, 1, 2]
        assert [c.text for c in together.choices] == [answer.choices[0].text for answer in alone]
        assert together.usage is not None
        assert together.usage.prompt_tokens == sum(
            answer.usage.prompt_tokens for answer in alone if answer.usage
        )

    def test_a_stream_says_the_same_as_one_answer(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        whole = acme.completions.create(
            model=service.model, prompt=new_text, max_tokens=24, temperature=0
        )
        chunks = list(
            acme.completions.create(
                model=service.model,
                prompt=new_text,
                max_tokens=24,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
        )

        text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
        assert text == whole.choices[0].text
        assert chunks[-1].choices == []
        assert cached(chunks[-1].usage) > 0

    def test_logprobs_line_up_with_the_text(self, acme: OpenAI, service: RunningService) -> None:
        answer = acme.completions.create(
            model=service.model,
            prompt=[100, 101, 102],
            max_tokens=5,
            temperature=0,
            logprobs=2,
            extra_body=IGNORE_EOS,
        )

        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.tokens is not None
        assert logprobs.token_logprobs is not None
        assert logprobs.text_offset is not None
        assert len(logprobs.tokens) == len(logprobs.token_logprobs) == 5
        assert logprobs.text_offset == sorted(logprobs.text_offset)

    def test_echo_puts_the_prompt_in_front(
        self, acme: OpenAI, service: RunningService, new_text: str
    ) -> None:
        answer = acme.completions.create(
            model=service.model, prompt=new_text, max_tokens=4, echo=True
        )

        assert answer.choices[0].text.startswith(new_text)


class TestAsyncClient:
    async def test_chat(
        self, async_acme: AsyncOpenAI, service: RunningService, new_text: str
    ) -> None:
        answer = await async_acme.chat.completions.create(
            model=service.model, messages=user(new_text), max_tokens=4, extra_body=IGNORE_EOS
        )

        assert answer.usage is not None
        assert answer.usage.completion_tokens == 4

    async def test_a_stream(
        self, async_acme: AsyncOpenAI, service: RunningService, new_text: str
    ) -> None:
        stream = await async_acme.chat.completions.create(
            model=service.model,
            messages=user(new_text),
            max_tokens=4,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=IGNORE_EOS,
        )
        chunks = [chunk async for chunk in stream]

        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 4

    async def test_models(self, async_acme: AsyncOpenAI, service: RunningService) -> None:
        assert [model.id async for model in async_acme.models.list()] == [service.model]

    async def test_the_streaming_helper_of_the_sdk(
        self, async_acme: AsyncOpenAI, service: RunningService, new_text: str
    ) -> None:
        """It insists on answers that end by themselves."""
        async with async_acme.chat.completions.stream(
            model=service.model, messages=user(new_text), max_tokens=4, logit_bias={EOS: 100}
        ) as stream:
            final = await stream.get_final_completion()

        assert final.choices[0].finish_reason == "stop"
        assert not final.choices[0].message.content
