from __future__ import annotations

import pytest

from deployments.gateway.schema import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    param_of,
    parse_chat,
    parse_completion,
)
from freehold.protocol import CacheMode

CHAT: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize(
    ("location", "param"),
    [
        (("temperature",), "temperature"),
        (("messages", 0, "role"), "messages[0].role"),
        (("logit_bias", "x", "[key]"), "logit_bias.x"),
        ((), "body"),
    ],
)
def test_a_location_is_written_as_clients_know_it(
    location: tuple[int | str, ...], param: str
) -> None:
    assert param_of(location) == param


def test_null_is_absent() -> None:
    nothing = dict.fromkeys(CHAT_FIELDS.known - {"model", "messages"})

    assert parse_chat({**CHAT, **nothing}) == parse_chat(CHAT)


def test_fields_without_effect_are_accepted() -> None:
    wire = parse_chat(
        {
            **CHAT,
            "user": "u",
            "safety_identifier": "s",
            "metadata": {"a": "b"},
            "store": True,
            "service_tier": "auto",
        }
    )

    assert wire.store


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("response_format", {"type": "text"}),
        ("tools", []),
        ("tool_choice", "none"),
        ("modalities", ["text"]),
        ("prompt_cache_retention", "in_memory"),
    ],
)
def test_asking_for_what_happens_anyway_is_no_error(field: str, value: object) -> None:
    assert parse_chat({**CHAT, field: value}) == parse_chat(CHAT)


def test_one_stop_is_a_list_of_one() -> None:
    assert parse_chat({**CHAT, "stop": "END"}).stop == ["END"]


@pytest.mark.parametrize("mode", list(CacheMode))
def test_cache_modes(mode: CacheMode) -> None:
    assert parse_chat({**CHAT, "cache": mode.value}).cache is mode


def test_a_salt_is_not_seen_in_a_repr() -> None:
    wire = parse_completion({"model": "m", "prompt": "x", "cache_salt": "user-42"})

    assert "user-42" not in repr(wire)


def test_no_field_is_both_known_and_refused() -> None:
    for table in (CHAT_FIELDS, COMPLETION_FIELDS):
        assert table.known.isdisjoint(table.refused)
