"""How the processes of a service log: one JSON object a line on standard error.

Ray forwards a replica's standard error to the console of ``freehold serve``. (The real one:
``sys.stderr`` of a replica is Serve's, which buffers a thousand lines.)
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger


def configure_logs(level: str) -> None:
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


def _error_kind(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Kind and place of an exception, never its text: that may quote what a request said."""
    if event.pop("exc_info", None):
        kind, _, trace = sys.exc_info()
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        event["error"] = kind.__name__ if kind else None
        event["at"] = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace else None
    return event
