"""The thread that steps the core: commands in between steps, parcels out after each.

The only code that touches the core once it runs. Other threads post commands (callables that run
here), read the last report, or ask for a final usage.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from freehold.engine.coalescer import Coalescer
from freehold.engine.final_usages import FinalUsages
from freehold.engine.stream import Parcel, hand_over
from freehold.errors import EngineDead, FreeholdError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freehold.engine.config import EngineConfig
    from freehold.engine.core import EngineCore
    from freehold.engine.outputs import StepOutput
    from freehold.engine.stream import Stream
    from freehold.kv.events import KVEvent
    from freehold.protocol import (
        AccountId,
        EpochId,
        GenerateRequest,
        Incarnation,
        ReplicaReport,
        RequestId,
    )

_log = logging.getLogger(__name__)


class StepThread:
    """Runs from construction until ``close``, or until the core is dead."""

    def __init__(
        self,
        core: EngineCore,
        config: EngineConfig,
        *,
        incarnation: Incarnation,
        clock: Callable[[], float],
        on_events: Callable[[Sequence[KVEvent]], None],
    ) -> None:
        """``on_events`` is called in this thread with what became findable or no longer is."""
        self._core = core
        self._clock = clock
        self._incarnation = incarnation
        self._on_events = on_events
        self._coalescer = Coalescer(config.coalesce_ms / 1000)
        self.final_usages = FinalUsages(
            ttl_s=config.final_usage_ttl_s, max_entries=config.max_final_usages, clock=clock
        )
        self._streams: dict[RequestId, Stream] = {}
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._arriving: dict[Stream, int] = {}  # prompt tokens that the report does not count yet
        self._arrived: list[Stream] = []  # those of them that the next report will count
        self._stopped: EngineDead | None = None
        self._close_at_s: float | None = None
        self._report = core.report(incarnation)
        # A daemon, so that a process which forgot to close the engine can still end.
        self._thread = threading.Thread(target=self._run, name="freehold-step", daemon=True)
        self._thread.start()

    def submit(self, stream: Stream, request: GenerateRequest) -> None:
        """Queue a request; whatever becomes of it is told to the stream.

        Raises:
            EngineDead: the thread has stopped.
        """
        with self._lock:
            self._arriving[stream] = len(request.token_ids)
        try:
            self._post(partial(self._add, stream, request, self._clock()))
        except EngineDead:
            with self._lock:
                del self._arriving[stream]
            raise

    def cancel(self, stream: Stream) -> None:
        """The stream's reader has left."""
        self._post_or_ignore(partial(self._cancel, stream))

    def abort(self, request_id: RequestId) -> None:
        self._post_or_ignore(lambda: self._handle(self._core.abort(request_id)))

    def purge(self, account_id: AccountId, keep_epoch_id: EpochId | None) -> int:
        """Waits for the step that is running. Raises EngineDead if the thread has stopped."""
        freed: Future[int] = Future()
        self._post(lambda: freed.set_result(self._core.purge(account_id, keep_epoch_id)))
        return freed.result()

    def report(self) -> ReplicaReport:
        with self._lock:
            num_arriving, num_tokens = len(self._arriving), sum(self._arriving.values())
            report, is_alive = self._report, self._stopped is None
        return replace(
            report,
            num_waiting=report.num_waiting + num_arriving,
            queued_prefill_tokens=report.queued_prefill_tokens + num_tokens,
            healthy=report.healthy and is_alive,
        )

    def close(self, drain_s: float) -> None:
        """Refuse new requests, let running ones end for ``drain_s``, abort the rest, and stop."""
        self._post_or_ignore(partial(self._begin_close, self._clock() + drain_s))
        self._thread.join()

    def _run(self) -> None:
        error = EngineDead(reason="it was closed")
        try:
            while self._core.dead is None and not self._is_closed():
                if self._run_commands(wait=not self._core.has_work):
                    self._publish()
                if self._core.has_work:
                    output = self._core.step()
                    self._publish()  # first, so that a reader finds itself in the report
                    self._handle(output)
        except Exception:  # noqa: BLE001 - logged; nobody above a thread's function could take it
            # A bug in the control side: its state cannot be trusted, so the replica must go.
            _log.exception("the engine's step thread failed")
            error = self._core.dead = EngineDead(reason="internal error in the step thread")
        finally:
            self._stop(self._core.dead or error)

    def _run_commands(self, *, wait: bool) -> int:
        """Run what was posted, waiting for the first one if told to; returns how many."""
        num_run = 0
        while True:
            try:
                command = self._commands.get(block=wait and num_run == 0)
            except Empty:
                return num_run
            command()
            num_run += 1

    def _handle(self, output: StepOutput) -> None:
        if output.failure is not None:
            _log.error("a step failed", exc_info=output.failure)
        for request_id, delta in output.deltas:
            self._coalescer.add(request_id, delta)
        parcels: dict[Stream, Parcel] = {}
        for request_id, delta in self._coalescer.due(self._clock()):
            if request_id in self._streams:
                parcels.setdefault(self._streams[request_id], Parcel()).deltas.append(delta)
        for ended in output.ended:
            self.final_usages.record(ended.request_id, ended.usage)
            self._coalescer.forget(ended.request_id)
            stream = self._streams.pop(ended.request_id, None)
            if stream is not None:
                parcel = parcels.setdefault(stream, Parcel())
                parcel.is_last, parcel.error = True, ended.error
        for stream in hand_over(parcels):
            self._commands.put(partial(self._cancel, stream))

    def _publish(self) -> None:
        report = self._core.report(self._incarnation)
        with self._lock:
            self._report = report
            for stream in self._arrived:
                del self._arriving[stream]
        self._arrived.clear()
        events = self._core.kv.drain_events()
        if events:
            self._on_events(events)

    def _add(self, stream: Stream, request: GenerateRequest, arrived_s: float) -> None:
        self._arrived.append(stream)
        try:
            if self._close_at_s is not None:
                raise EngineDead(reason="it is closing")
            self._core.add(request, arrived_s)
        except FreeholdError as error:
            hand_over({stream: Parcel(is_last=True, error=error)})
        except Exception:
            self._streams[request.request_id] = stream  # whoever stops the thread tells it
            raise
        else:
            self._streams[request.request_id] = stream

    def _cancel(self, stream: Stream) -> None:
        """Only if the id still belongs to this stream: another request may use it by now."""
        if self._streams.get(stream.request_id) is stream:
            del self._streams[stream.request_id]
            self._handle(self._core.abort(stream.request_id))

    def _begin_close(self, close_at_s: float) -> None:
        self._close_at_s = close_at_s

    def _is_closed(self) -> bool:
        if self._close_at_s is None:
            return False
        return not self._core.has_work or self._clock() >= self._close_at_s

    def _stop(self, error: EngineDead) -> None:
        """Nobody is left waiting: not the streams, not those who posted a moment ago."""
        with self._lock:
            self._stopped = error
        try:
            is_orderly = self._core.dead is None
            for request_id in tuple(self._streams) if is_orderly else ():
                self._handle(self._core.abort(request_id))
            self._handle(self._core.kill(error))
            self._run_commands(wait=False)
            self._publish()
        finally:
            last = Parcel(is_last=True, error=error)
            hand_over(dict.fromkeys(self._streams.values(), last))

    def _post(self, command: Callable[[], None]) -> None:
        with self._lock:
            if self._stopped is not None:
                raise EngineDead(self._stopped.reason)
            self._commands.put(command)

    def _post_or_ignore(self, command: Callable[[], None]) -> None:
        try:
            self._post(command)
        except EngineDead:
            return  # nothing runs any more, so there is nothing to stop
