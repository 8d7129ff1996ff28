from __future__ import annotations

import pytest

from deployments.gateway.messages import parse_messages
from deployments.gateway.refusals import UnsupportedParameter


def test_text_parts_are_joined_as_they_are() -> None:
    parts = [{"type": "text", "text": "You are "}, {"type": "text", "text": "brief."}]

    assert parse_messages([{"role": "system", "content": parts}]) == (
        {"role": "system", "content": "You are brief."},
    )


def test_a_developer_is_a_system() -> None:
    (message,) = parse_messages([{"role": "developer", "content": "x"}])

    assert message["role"] == "system"


def test_an_answer_as_the_sdk_dumps_it_can_be_sent_back() -> None:
    dumped: dict[str, object] = {
        "role": "assistant",
        "content": "Hello",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }

    assert parse_messages([dumped]) == ({"role": "assistant", "content": "Hello"},)


def test_a_name_is_passed_on() -> None:
    (message,) = parse_messages([{"role": "user", "content": "x", "name": "ann"}])

    assert message.get("name") == "ann"


def test_a_cache_marker_is_never_dropped_silently() -> None:
    content = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]

    with pytest.raises(UnsupportedParameter, match="cache_control"):
        parse_messages([{"role": "user", "content": content}])
