"""What is refused arrives as the exception that users of the SDK already catch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest

if TYPE_CHECKING:
    from tests.support.service import RunningService

pytestmark = pytest.mark.service

HELLO: Any = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("key", ["wrong", "fh_wrong", "sk-" + "0" * 48])
def test_no_key_no_answer(service: RunningService, key: str) -> None:
    with openai.OpenAI(base_url=service.base_url, api_key=key, max_retries=0) as stranger:
        for call in (
            lambda: stranger.models.list(),
            lambda: stranger.chat.completions.create(model=service.model, messages=HELLO),
            lambda: stranger.completions.create(model=service.model, prompt="hello"),
        ):
            with pytest.raises(openai.AuthenticationError) as caught:
                call()
            assert key not in str(caught.value)


def test_an_unknown_model_is_not_found(acme: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        acme.chat.completions.create(model="gpt-9", messages=HELLO)

    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"max_tokens": 10**6}, "max_tokens", "context_length_exceeded"),
        ({"n": 10**6}, "n", "invalid_value"),
        ({"tools": [{"type": "function"}]}, "tools", "unsupported_parameter"),
        (
            {"response_format": {"type": "json_object"}},
            "response_format",
            "unsupported_parameter",
        ),
        ({"extra_body": {"cache_salt": "a/b"}}, "cache_salt", "invalid_value"),
        ({"extra_body": {"temprature": 1}}, "temprature", "unknown_parameter"),
    ],
)
def test_a_bad_request_names_the_field(
    acme: openai.OpenAI,
    service: RunningService,
    fields: dict[str, Any],
    param: str,
    code: str,
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        acme.chat.completions.create(model=service.model, messages=HELLO, **fields)

    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.type == "invalid_request_error"


def test_a_prompt_that_never_fits_is_refused_at_once(
    acme: openai.OpenAI, service: RunningService
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        acme.completions.create(model=service.model, prompt=[100] * 100_000)

    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "prompt"


def test_every_answer_has_a_request_id(acme: openai.OpenAI, service: RunningService) -> None:
    raw = acme.chat.completions.with_raw_response.create(
        model=service.model, messages=HELLO, max_tokens=1
    )
    assert raw.request_id

    with pytest.raises(openai.NotFoundError) as caught:
        acme.chat.completions.create(model="gpt-9", messages=HELLO)
    assert caught.value.request_id
