"""Isolation in pairs: who may reuse a prefix does, who may not computes it again.

One half without the other proves nothing: a cache that never hits would isolate perfectly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from openai import OpenAI

    from tests.support.service import RunningService

pytestmark = pytest.mark.service


class Asker:
    """Asks for a few tokens and says how many of the prompt's were cached."""

    def __init__(self, service: RunningService) -> None:
        self._model = service.model

    def chat(self, client: OpenAI, text: str, **fields: str) -> int:
        answer = client.chat.completions.create(
            model=self._model,
            messages=[{"role": "user", "content": text}],
            max_tokens=2,
            extra_body=fields,
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens is not None
        return answer.usage.prompt_tokens_details.cached_tokens

    def completion(self, client: OpenAI, text: str, **fields: str) -> int:
        answer = client.completions.create(
            model=self._model, prompt=text, max_tokens=2, extra_body=fields
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens is not None
        return answer.usage.prompt_tokens_details.cached_tokens


@pytest.fixture
def ask(service: RunningService) -> Asker:
    return Asker(service)


def test_a_tenant_finds_its_own_prefix_and_nobody_elses(
    ask: Asker, acme: OpenAI, globex: OpenAI, new_text: str
) -> None:
    assert ask.chat(acme, new_text) == 0
    assert ask.chat(acme, new_text) > 0
    assert ask.chat(globex, new_text) == 0
    assert ask.chat(globex, new_text) > 0
    assert ask.chat(acme, new_text) > 0


def test_the_second_endpoint_is_isolated_too(
    ask: Asker, acme: OpenAI, globex: OpenAI, new_text: str
) -> None:
    assert ask.completion(acme, new_text) == 0
    assert ask.completion(acme, new_text) > 0
    assert ask.completion(globex, new_text) == 0


def test_end_users_of_one_tenant_are_apart(ask: Asker, acme: OpenAI, new_text: str) -> None:
    assert ask.chat(acme, new_text, cache_salt="ann") == 0
    assert ask.chat(acme, new_text, cache_salt="ann") > 0
    assert ask.chat(acme, new_text, cache_salt="bob") == 0
    assert ask.chat(acme, new_text) == 0  # nor does the tenant's own prompt find an end user's


def test_an_end_users_salt_never_leads_into_another_tenant(
    ask: Asker, acme: OpenAI, globex: OpenAI, new_text: str
) -> None:
    assert ask.chat(acme, new_text, cache_salt="ann") == 0
    assert ask.chat(acme, new_text, cache_salt="ann") > 0
    assert ask.chat(globex, new_text, cache_salt="ann") == 0


def test_a_routing_hint_never_leads_into_another_tenant(
    ask: Asker, acme: OpenAI, globex: OpenAI, new_text: str
) -> None:
    assert ask.chat(acme, new_text, prompt_cache_key="session") == 0
    assert ask.chat(acme, new_text, prompt_cache_key="session") > 0
    assert ask.chat(globex, new_text, prompt_cache_key="session") == 0


def test_cache_off_neither_leaves_nor_finds_anything(
    ask: Asker, acme: OpenAI, new_text: str
) -> None:
    assert ask.chat(acme, new_text, cache="off") == 0
    assert ask.chat(acme, new_text) == 0  # it left nothing
    assert ask.chat(acme, new_text) > 0
    assert ask.chat(acme, new_text, cache="off") == 0  # it finds nothing


def test_no_store_finds_but_leaves_nothing(ask: Asker, acme: OpenAI, new_text: str) -> None:
    assert ask.chat(acme, new_text, cache="no-store") == 0
    assert ask.chat(acme, new_text, cache="no-store") == 0  # it left nothing
    assert ask.chat(acme, new_text) == 0
    assert ask.chat(acme, new_text, cache="no-store") > 0  # it finds
