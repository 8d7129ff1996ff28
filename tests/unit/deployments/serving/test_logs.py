from __future__ import annotations

import io
import json
import logging
import sys
from typing import TYPE_CHECKING

import pytest
import structlog

from deployments.serving.logs import configure_logs
from freehold.errors import CapacityExceeded, EngineDead, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Generator[io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", stream)
    yield stream
    structlog.reset_defaults()


@pytest.fixture
def serve_log(output: io.StringIO) -> Generator[tuple[logging.Logger, io.StringIO]]:
    """Serve's logger as a replica has it, and what it writes."""
    logger, stream = logging.getLogger("ray.serve"), io.StringIO()
    filters, handler = logger.filters[:], logging.StreamHandler(stream)
    logger.addHandler(handler)
    configure_logs("info")
    yield logger, stream
    logger.removeHandler(handler)
    logger.filters[:] = filters


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


@pytest.mark.parametrize(
    "refusal", [CapacityExceeded("the queue", 1.0), InvalidRequest("n", "must be small")]
)
def test_serve_does_not_log_a_refusal(
    serve_log: tuple[logging.Logger, io.StringIO], refusal: Exception
) -> None:
    logger, written = serve_log
    try:
        raise refusal
    except type(refusal):
        logger.exception("Request failed.")

    assert written.getvalue() == ""


def test_serve_logs_the_kind_of_a_bug_but_never_its_text(
    serve_log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, written = serve_log
    message = "the prompt was: hunter2"
    try:
        raise ValueError(message)
    except ValueError:
        logger.exception("Request failed.")

    assert written.getvalue().startswith("Request failed. ValueError at test_serve_logs_the_kind")
    assert "hunter2" not in written.getvalue()


def test_serve_logs_all_of_what_else_fails(
    serve_log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, written = serve_log
    reason = "step thread dead"
    for event in ("Request failed.", "Replica failed."):
        try:
            raise EngineDead(reason)
        except EngineDead:
            logger.exception(event)

    assert written.getvalue().count("EngineDead: the engine has stopped: step thread dead") == 2
