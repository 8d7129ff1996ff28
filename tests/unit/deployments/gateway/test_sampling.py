from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deployments.gateway.refusals import ContextLengthExceeded
from deployments.gateway.sampling import (
    chat_logprobs,
    chat_max_tokens,
    fit_output,
    sampling_params,
)
from deployments.gateway.schema import parse_chat
from freehold.protocol import SamplingParams
from tests.support.gateway import make_card

if TYPE_CHECKING:
    from deployments.gateway.schema import ChatRequest

CARD = make_card(max_model_len=100)


def chat(**fields: object) -> ChatRequest:
    return parse_chat({"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})


def params(**fields: object) -> SamplingParams:
    return sampling_params(chat(**fields), max_tokens=9, logprobs=None, card=CARD)


def test_defaults_are_the_protocols_own() -> None:
    assert params() == SamplingParams(max_tokens=9)


def test_every_field_arrives() -> None:
    assert params(
        min_tokens=2,
        n=3,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=-0.3,
        logit_bias={"5": -100},
        seed=7,
        stop=["a", "b"],
        stop_token_ids=[9],
        include_stop_str_in_output=True,
        ignore_eos=True,
        skip_special_tokens=False,
    ) == SamplingParams(
        max_tokens=9,
        min_tokens=2,
        n=3,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=-0.3,
        logit_bias={5: -100.0},
        seed=7,
        stop=("a", "b"),
        stop_token_ids=(9,),
        include_stop_in_output=True,
        ignore_eos=True,
        skip_special_tokens=False,
    )


def test_both_ways_to_switch_top_k_off() -> None:
    assert params(top_k=-1).top_k == params(top_k=0).top_k == 0


def test_a_negative_seed_is_a_seed() -> None:
    seed = params(seed=-1).seed

    assert seed is not None
    assert 0 <= seed < 2**62


@pytest.mark.parametrize(
    ("fields", "logprobs"),
    [({}, None), ({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 3}, 3)],
)
def test_chat_logprobs(fields: dict[str, object], logprobs: int | None) -> None:
    assert chat_logprobs(chat(**fields)) == logprobs


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, ("max_tokens", None)),
        ({"max_tokens": 5}, ("max_tokens", 5)),
        ({"max_completion_tokens": 5}, ("max_completion_tokens", 5)),
        ({"max_completion_tokens": 5, "max_tokens": 5}, ("max_completion_tokens", 5)),
    ],
)
def test_either_name_of_the_limit(
    fields: dict[str, object], wanted: tuple[str, int | None]
) -> None:
    assert chat_max_tokens(chat(**fields)) == wanted


@pytest.mark.parametrize(
    ("prompt", "wanted", "default", "expected"),
    [(40, None, None, 60), (40, None, 16, 16), (95, None, 16, 5), (40, 60, 16, 60)],
)
def test_output_fills_the_context_at_most(
    prompt: int, wanted: int | None, default: int | None, expected: int
) -> None:
    assert fit_output(prompt, ("max_tokens", wanted), default, CARD) == expected


def test_prompt_and_output_must_fit_the_context() -> None:
    with pytest.raises(ContextLengthExceeded, match="context is 100 tokens") as caught:
        fit_output(40, ("max_completion_tokens", 61), None, CARD)

    assert caught.value.param == "max_completion_tokens"
