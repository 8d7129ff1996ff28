"""Around every request: its id, headers that are refused, errors that nobody else answered, and
one canonical log line at its end.

Plain ASGI: Starlette's own middleware class would hide the client's disconnect.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import structlog
from starlette.datastructures import Headers, MutableHeaders

from deployments.gateway.context import RequestContext, attach_context
from deployments.gateway.disconnect import ClientGone
from deployments.gateway.errors import INTERNAL, to_wire
from deployments.gateway.request_headers import (
    CLIENT_REQUEST_ID,
    REQUEST_ID,
    adopted_request_id,
    client_request_id,
    refuse_control_headers,
)
from deployments.gateway.responses import error_response
from deployments.gateway.timing import StageTimer
from freehold.protocol import RequestId

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tenancy.clock import Clock

CLIENT_CLOSED = 499
"""nginx's number for a client that went away; for the log only, nobody is there to receive it."""

_log = structlog.stdlib.get_logger("freehold.gateway")


class Edge:
    def __init__(self, app: ASGIApp, *, clock: Clock, adopt_request_id: bool) -> None:
        self._app = app
        self._clock = clock
        self._adopt_request_id = adopt_request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own_id = secrets.token_hex(16)
        context = RequestContext(RequestId(own_id), own_id, StageTimer(self._clock.monotonic))
        attach_context(scope, context)
        added: dict[str, str] = {REQUEST_ID: own_id}

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                MutableHeaders(scope=message).update(added)
            try:
                await send(message)
            except OSError:  # what servers raise for a closed connection
                raise ClientGone from None

        try:
            self._read_headers(Headers(scope=scope), context, added)
            await self._app(scope, receive, send_with_id)
        except ClientGone:
            context.status = CLIENT_CLOSED
        except asyncio.CancelledError:
            context.status = context.status or CLIENT_CLOSED
            raise
        except Exception as error:  # noqa: BLE001  # the last line of defence: answers, logs
            _note(error, context)
            if not context.status:
                await error_response(to_wire(error))(scope, receive, send_with_id)
        finally:
            _log_request(scope, context)

    def _read_headers(
        self, headers: Headers, context: RequestContext, added: dict[str, str]
    ) -> None:
        """
        Raises:
            InvalidRequest
        """
        if self._adopt_request_id and (adopted := adopted_request_id(headers)) is not None:
            context.public_id = adopted
            del added[REQUEST_ID]  # the server in front adds it
        client_id = client_request_id(headers)
        if client_id is not None:
            added[CLIENT_REQUEST_ID] = context.facts["client_request_id"] = client_id
        refuse_control_headers(headers)


def _note(error: Exception, context: RequestContext) -> None:
    """The error's kind, and for a bug of ours where it is. Its message may hold a prompt: no."""
    wire = to_wire(error)
    context.facts["error"] = wire.verdict.code
    if wire.param is not None:
        context.facts["param"] = wire.param
    if wire.verdict is INTERNAL:
        context.facts["exception"] = type(error).__qualname__
        context.facts["raised_at"] = raised_at(error)


def raised_at(error: Exception) -> str:
    """``file:line`` of the innermost frames, the last one last."""
    frames: list[str] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return " > ".join(frames[-5:])


def _log_request(scope: Scope, context: RequestContext) -> None:
    stages_ms = {
        f"{stage}_ms": round(duration_s * 1000, 3)
        for stage, duration_s in context.timer.stages_s.items()
    }
    level = _log.warning if context.status >= 500 else _log.info
    level(
        "request",
        request_id=context.public_id,
        engine_request_id=context.request_id,
        method=scope["method"],
        path=scope["path"][:128],
        status=context.status,
        duration_ms=round(context.timer.elapsed_s * 1000, 3),
        **context.facts,
        **stages_ms,
    )
