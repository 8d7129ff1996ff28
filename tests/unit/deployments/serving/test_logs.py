from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pytest
import structlog

from deployments.serving.logs import configure_logs

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Generator[io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", stream)
    yield stream
    structlog.reset_defaults()


def test_one_object_a_line(output: io.StringIO) -> None:
    configure_logs("info")
    structlog.get_logger("a").info("started", port=1)
    structlog.get_logger("a").debug("unseen")

    [line] = output.getvalue().splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"], event["port"]) == ("started", "info", 1)


def test_an_error_is_named_and_placed_but_never_quoted(output: io.StringIO) -> None:
    configure_logs("info")

    def fail() -> None:
        message = "the prompt was: hunter2"
        raise ValueError(message)

    try:
        fail()
    except ValueError:
        structlog.get_logger("a").exception("failed")

    event = json.loads(output.getvalue())
    assert event["error"] == "ValueError"
    assert ".fail:" in event["at"]
    assert "hunter2" not in output.getvalue()
