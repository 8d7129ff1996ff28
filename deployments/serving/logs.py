"""How the processes of a service log: one JSON object a line on standard error.

Ray forwards a replica's standard error to the console of ``freehold serve``. (The real one:
``sys.stderr`` of a replica is Serve's, which buffers a thousand lines.)
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import structlog

from freehold.errors import CapacityExceeded, FreeholdError, InvalidRequest

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger


_REQUEST_FAILED = "Request failed."
"""What Serve writes, with the traceback, about every exception that leaves a replica's method."""
_ANSWERS = (CapacityExceeded, InvalidRequest)
"""Refusals: the gateway logs their requests, and a full queue must not fill a disk."""


def configure_logs(level: str) -> None:
    logging.getLogger("ray.serve").addFilter(discreet)  # once, however often it is called
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _error_kind,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(sys.__stderr__),
        cache_logger_on_first_use=True,
    )


def discreet(record: logging.LogRecord) -> bool:
    """Serve's own log of a failed request: nothing of a refusal, no text of an unexpected error."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None or record.msg != _REQUEST_FAILED:
        return True
    if not isinstance(error, FreeholdError):  # those hold no prompt
        record.msg, record.args = "%s %s at %s", (record.msg, type(error).__name__, _place(error))
        record.exc_info = None
    return not isinstance(error, _ANSWERS)


def _error_kind(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Kind and place of an exception, never its text: that may quote what a request said."""
    if event.pop("exc_info", None):
        error = sys.exception()
        event["error"] = type(error).__name__ if error else None
        event["at"] = _place(error) if error else None
    return event


def _place(error: BaseException) -> str | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace else None
