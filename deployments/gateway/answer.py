"""Admit, generate, answer, settle: the part of a request that waits for others.

Headers are not sent before the engine's first delta, so that a refusal has its real status. Once
they are, a failure is an event in the stream. Whatever happens (end, error, disconnect), the
engine's stream is closed and the lease is settled with the last usage that came.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from starlette.responses import Response

from deployments.gateway.answer_headers import answer_headers
from deployments.gateway.disconnect import ClientGone, DisconnectWatch
from deployments.gateway.errors import to_wire
from deployments.gateway.meter import UsageMeter, ended_early
from deployments.gateway.refusals import QuotaExceeded
from deployments.gateway.responses import JSON
from deployments.gateway.streams import prompt_streams
from deployments.gateway.time_limit import time_limit
from deployments.gateway.translate import in_wire_terms
from deployments.gateway.wire import error_event
from freehold.errors import InvalidRequest
from tenancy.admission import Admitted
from tenancy.usage import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope, Send

    from deployments.gateway.context import RequestContext
    from deployments.gateway.ports import RouteInfo
    from deployments.gateway.prepare import Job
    from deployments.gateway.services import GatewayServices
    from deployments.gateway.streams import PromptStreams
    from deployments.gateway.wire import AnswerWire
    from freehold.protocol import Delta
    from tenancy.admission import Lease
    from tenancy.principal import Principal

EVENT_STREAM = "text/event-stream; charset=utf-8"
_ERROR_EVENT_TIMEOUT_S = 5.0

_log = structlog.stdlib.get_logger("freehold.gateway")
_settling: set[asyncio.Task[None]] = set()
"""The event loop keeps weak references only; a settlement outlives its cancelled request."""


class Answer(Response):
    """A response that is generated while it is sent."""

    def __init__(
        self,
        services: GatewayServices,
        principal: Principal,
        context: RequestContext,
        job: Job,
        wire: AnswerWire,
        *,
        stream: bool,
    ) -> None:
        super().__init__()
        self._services = services
        self._principal = principal
        self._context = context
        self._job = job
        self._wire = wire
        self._is_stream = stream
        self._is_started = False
        self._meter = UsageMeter(job.num_choices)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with DisconnectWatch(receive) as watch:
            try:
                await self._run(send, watch)
            except Exception as error:
                if self._is_started and not isinstance(error, ClientGone):
                    await _send_failure(send, watch, error)
                raise

    async def _run(self, send: Send, watch: DisconnectWatch) -> None:
        lease = await self._admit()
        outcome = Outcome.FAILED
        try:
            async with time_limit("the request", self._services.limits.max_stream_s):
                await self._generate(send, watch)
            outcome = Outcome.COMPLETED
        except (asyncio.CancelledError, ClientGone):
            outcome = Outcome.CANCELLED
            raise
        except InvalidRequest as refusal:
            raise in_wire_terms(refusal, self._job.prompt_field) from refusal
        finally:
            self._note(outcome)
            await self._settle(lease, outcome)

    async def _admit(self) -> Lease:
        """Fails closed: without an answer in time nobody is admitted.

        Raises:
            QuotaExceeded, TimeLimitExceeded
        """
        context = self._context
        async with time_limit("admission", self._services.limits.admit_timeout_s):
            answer = await self._services.admission.admit(
                self._principal, context.request_id, self._job.demand
            )
        context.timer.lap("admit")
        if not isinstance(answer, Admitted):
            raise QuotaExceeded(answer.reason, answer.retry_after_s)
        return answer.lease

    async def _generate(self, send: Send, watch: DisconnectWatch) -> None:
        streams = prompt_streams(self._services.fleet, self._job.requests, self._job.hint)
        try:
            await streams.open()
            first = await streams.next()
            if first is None:
                raise ended_early()
            self._note_first(first[1], streams.route)
            if self._is_stream:
                await self._send_stream(send, watch, streams, first)
            else:
                await self._send_whole(send, watch, streams, first)
        finally:
            self._note_route(streams.route)
            await streams.aclose()

    async def _send_stream(
        self, send: Send, watch: DisconnectWatch, streams: PromptStreams, first: tuple[int, Delta]
    ) -> None:
        item: tuple[int, Delta] | None = first
        while item is not None:
            self._meter.take(*item)
            events = self._wire.events(*item)
            if not self._is_started:
                headers = answer_headers(
                    EVENT_STREAM, self._context, self._principal, streams.route
                )
                await _send_start(send, {**headers, "x-accel-buffering": "no"})
                self._is_started = True
            if events:
                await send({"type": "http.response.body", "body": events, "more_body": True})
            item = await streams.next()
        self._meter.check_complete()
        watch.stand_down()
        last = self._wire.end(self._meter.usage)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _send_whole(
        self, send: Send, watch: DisconnectWatch, streams: PromptStreams, first: tuple[int, Delta]
    ) -> None:
        item: tuple[int, Delta] | None = first
        while item is not None:
            self._meter.take(*item)
            self._wire.collect(*item)
            item = await streams.next()
        self._meter.check_complete()
        body = self._wire.whole(self._meter.usage)
        watch.stand_down()
        headers = answer_headers(JSON, self._context, self._principal, streams.route)
        await _send_start(send, {**headers, "content-length": str(len(body))})
        self._is_started = True
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _settle(self, lease: Lease, outcome: Outcome) -> None:
        """Exactly once, and to its end even if this request is cancelled meanwhile."""
        task = asyncio.create_task(self._settle_in_time(lease, outcome))
        _settling.add(task)
        task.add_done_callback(_settling.discard)
        await asyncio.shield(task)

    async def _settle_in_time(self, lease: Lease, outcome: Outcome) -> None:
        try:
            async with asyncio.timeout(self._services.limits.settle_timeout_s):
                await lease.settle(self._meter.usage, outcome)
        except Exception as error:  # noqa: BLE001  # the client has its answer; an operator must know
            _log.error(
                "settlement failed",
                request_id=self._context.request_id,
                tenant_id=self._principal.tenant_id,
                exception=type(error).__qualname__,
            )

    def _note_first(self, delta: Delta, route: RouteInfo | None) -> None:
        """Split the wait for the first delta: the choice of a replica, what the engine took
        itself, and the way there and back."""
        timer = self._context.timer
        route_s = 0.0 if route is None else route.decision_s
        engine_s = 0.0 if delta.timing is None else delta.timing.first_token_s
        timer.add("route", route_s)
        waited_s = timer.lap("hand_over")
        timer.add("hand_over", -min(route_s + engine_s, waited_s))
        timer.add("engine", engine_s)

    def _note_route(self, route: RouteInfo | None) -> None:
        if route is not None:
            self._context.facts["replica_id"] = route.replica_id
            self._context.facts["route_reason"] = route.reason
            self._context.facts["predicted_hit_tokens"] = route.hit_tokens

    def _note(self, outcome: Outcome) -> None:
        usage = self._meter.usage
        self._context.facts.update(
            outcome=outcome.value,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            output_tokens=usage.output,
        )


async def _send_start(send: Send, headers: Mapping[str, str]) -> None:
    raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": raw})


async def _send_failure(send: Send, watch: DisconnectWatch, error: Exception) -> None:
    """The last event of a broken stream; no [DONE] follows it."""
    watch.stand_down()
    event = error_event(to_wire(error))
    try:
        async with asyncio.timeout(_ERROR_EVENT_TIMEOUT_S):
            await send({"type": "http.response.body", "body": event, "more_body": False})
    except (ClientGone, TimeoutError):
        return  # the client is gone or does not read
