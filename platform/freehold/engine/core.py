"""The engine without a thread: schedule → execute → sample → advance, one step a call.

Decides what a step's results mean for requests, and what a failed step costs: the requests in it,
not the engine. Knows no stream, no thread and no clock but the one it is given.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from freehold.engine.batch import StepBatch
from freehold.engine.choice import Choice, Gain
from freehold.engine.outputs import Ended, StepOutput
from freehold.engine.report import replica_report
from freehold.engine.sampler import Sampler
from freehold.engine.scheduler import Scheduler
from freehold.engine.sequence import RequestGroup
from freehold.engine.stats import Counters, StepTimes
from freehold.engine.stops import Stop
from freehold.engine.validation import validate
from freehold.errors import CapacityExceeded, EngineDead, FreeholdError, InvalidRequest, StepFailed
from freehold.kv.cache import KVCache
from freehold.protocol import Delta, EngineTiming, FinishReason

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence as Seq

    from freehold.engine.batch import Executor
    from freehold.engine.config import EngineConfig
    from freehold.engine.sampler import Sampled
    from freehold.engine.schedule import ScheduledRow
    from freehold.engine.sequence import Sequence
    from freehold.engine.vocabulary import Vocabulary
    from freehold.protocol import (
        AccountId,
        EpochId,
        GenerateRequest,
        Incarnation,
        ModelCard,
        ReplicaReport,
        RequestId,
    )


class EngineCore:
    """Single-threaded; every method is called from the same thread."""

    def __init__(
        self,
        executor: Executor,
        vocabulary: Vocabulary,
        config: EngineConfig,
        card: ModelCard,
        *,
        clock: Callable[[], float],
        entropy: Callable[[], int],
        sampler: Sampler | None = None,
    ) -> None:
        """``entropy`` seeds the choices whose request brings no seed."""
        self.kv = KVCache(config.num_blocks, config.block_size)
        self.counters = Counters()
        self._times = StepTimes()
        self._scheduler = Scheduler(self.kv, config, self._times, self.counters)
        self._sampler = sampler or Sampler()
        self._executor = executor
        self._vocabulary = vocabulary
        self._config = config
        self._card = card
        self._eos_token_ids = frozenset(card.eos_token_ids)
        self._clock = clock
        self._entropy = entropy
        self._groups: dict[RequestId, RequestGroup] = {}
        self._choices: dict[Sequence, Choice] = {}
        self._num_arrived = 0
        self._num_failures = 0
        self.dead: EngineDead | None = None
        """Set once and for good; every request has ended with it then."""

    @property
    def has_work(self) -> bool:
        return bool(self._groups)

    def add(self, request: GenerateRequest, arrived_s: float) -> None:
        """Queue a request.

        Raises:
            InvalidRequest: it can never run here, or its id is already running.
            CapacityExceeded: the queue is full.
            EngineDead: no step will ever run again.
        """
        if self.dead is not None:
            raise EngineDead(self.dead.reason)
        if request.request_id in self._groups:
            raise InvalidRequest(param="request_id", reason="a request with this id is running")
        validate(request, self._card, self._config, self.kv)
        if self._scheduler.num_waiting + request.sampling.n > self._config.max_waiting:
            what = "the engine's queue"
            raise CapacityExceeded(what, self._retry_after_s())
        group = RequestGroup(request, self._num_arrived, arrived_s)
        self._num_arrived += 1
        self._groups[request.request_id] = group
        self._scheduler.add(group)
        for sequence in group.sequences:
            self._choices[sequence] = Choice(
                sequence,
                self._vocabulary,
                self._eos_token_ids,
                self._card.max_model_len,
                random.Random(self._seed(request, sequence.index)),  # noqa: S311 - not a secret
            )

    def abort(self, request_id: RequestId) -> StepOutput:
        """End a request now, at any point; ids that are not running are ignored."""
        output = StepOutput()
        group = self._groups.get(request_id)
        if group is not None:
            self._abort(group, output)
        return output

    def kill(self, error: EngineDead) -> StepOutput:
        """End every request with ``error`` and accept no more."""
        self.dead = error
        output = StepOutput()
        for group in tuple(self._groups.values()):
            self._end(group, output, error)
        return output

    def step(self) -> StepOutput:
        """Compute one step. After too many failures in a row, or lost blocks, ``dead`` is set."""
        output = StepOutput()
        started_s = self._clock()
        self._expire(started_s, output)
        schedule = self._scheduler.schedule()
        for sequence in schedule.unplaceable:
            error = CapacityExceeded("the KV cache", self._retry_after_s())
            self._end(sequence.group, output, error)
        if not schedule.rows:
            return output
        for row in schedule.rows:
            group = row.sequence.group
            if group.scheduled_s is None:
                group.scheduled_s = started_s - group.arrived_s
        try:
            sampled = self._compute(schedule.rows)
        except Exception as failure:  # noqa: BLE001 - whatever a device throws costs its step only
            self._fail(schedule.rows, output, failure)
            return output
        self._num_failures = 0
        self._measure(schedule.rows, self._clock() - started_s)
        self._advance(schedule.rows, sampled, output)
        return output

    def purge(self, account_id: AccountId, keep_epoch_id: EpochId | None) -> int:
        return self.kv.purge(account_id, keep_epoch_id)

    def report(self, incarnation: Incarnation) -> ReplicaReport:
        """One consistent picture, taken between two steps."""
        return replica_report(
            incarnation, self._card, self.kv, self._scheduler, self.counters, self._times
        )

    def _compute(self, rows: Seq[ScheduledRow]) -> list[Sampled]:
        """One token for every row with logits, in row order."""
        logits = self._executor.execute(StepBatch([row.to_step_row() for row in rows]))
        states = [self._choices[row.sequence].state for row in rows if row.num_logits]
        return self._sampler.sample(logits, states) if states else []

    def _advance(self, rows: Seq[ScheduledRow], sampled: Seq[Sampled], output: StepOutput) -> None:
        tokens = iter(sampled)
        for row in rows:
            self._scheduler.advance(row)
            if row.num_logits:
                gain = self._choices[row.sequence].accept(next(tokens))
                self.counters.output_tokens += len(gain.token_ids)
                self._emit(self._choices[row.sequence], gain, output)

    def _emit(self, choice: Choice, gain: Gain, output: StepOutput) -> None:
        """Report a choice's progress, and its end."""
        sequence, group = choice.sequence, choice.sequence.group
        delta = Delta(
            index=sequence.index,
            token_ids=gain.token_ids,
            text=gain.text,
            usage=group.usage,
            logprobs=gain.logprobs,
            finish_reason=sequence.finish_reason,
            stop_reason=sequence.stop_reason,
            timing=self._first_timing(group),
        )
        output.deltas.append((group.request_id, delta))
        if sequence.is_finished:
            self._scheduler.remove(sequence)
            if group.is_finished:
                self._end(group, output)

    def _first_timing(self, group: RequestGroup) -> EngineTiming | None:
        if group.has_emitted or group.scheduled_s is None:
            return None
        group.has_emitted = True
        return EngineTiming(group.scheduled_s, self._clock() - group.arrived_s)

    def _expire(self, now_s: float, output: StepOutput) -> None:
        for group in tuple(self._groups.values()):
            if group.deadline_s is not None and now_s >= group.deadline_s:
                self._abort(group, output)

    def _abort(self, group: RequestGroup, output: StepOutput) -> None:
        """Text that was held back is still shown: it was computed, and it is charged."""
        for sequence in group.sequences:
            if not sequence.is_finished:
                choice = self._choices[sequence]
                text = choice.finish(Stop(FinishReason.ABORT))
                self._emit(choice, Gain((), text), output)

    def _fail(self, rows: Seq[ScheduledRow], output: StepOutput, failure: Exception) -> None:
        """What the step wrote was never published: freeing it is enough to forget it."""
        output.failure = failure
        error = StepFailed(type(failure).__name__)
        for group in dict.fromkeys(row.sequence.group for row in rows):
            self._end(group, output, error)
        self._num_failures += 1
        if self._num_failures >= self._config.max_consecutive_failures:
            reason = f"{self._num_failures} steps in a row failed, the last by {error.reason}"
        elif not self.kv.check():
            reason = f"the block pool does not add up after {error.reason}"
        else:
            return
        output.ended += self.kill(EngineDead(reason)).ended

    def _end(
        self, group: RequestGroup, output: StepOutput, error: FreeholdError | None = None
    ) -> None:
        for sequence in group.sequences:
            self._scheduler.remove(sequence)
            del self._choices[sequence]
        del self._groups[group.request_id]
        is_complete = all(
            s.finish_reason not in (None, FinishReason.ABORT) for s in group.sequences
        )
        if is_complete:
            self.counters.num_finished += 1
        else:
            self.counters.num_aborted += 1
        output.ended.append(Ended(group.request_id, group.usage, error))

    def _measure(self, rows: Seq[ScheduledRow], elapsed_s: float) -> None:
        num_prefill = sum(row.num_tokens for row in rows if row.is_prompt)
        num_decodes = sum(1 for row in rows if not row.is_prompt)
        self.counters.computed_prefill_tokens += num_prefill
        self._times.observe(num_prefill, num_decodes, elapsed_s)

    def _retry_after_s(self) -> float:
        """When what is queued will be computed, at the measured rate."""
        rate = self._times.prefill_tokens_per_s
        return max(1.0, self._scheduler.queued_prefill_tokens / rate) if rate else 1.0

    def _seed(self, request: GenerateRequest, index: int) -> int:
        seed = request.sampling.seed
        return self._entropy() if seed is None else seed + index
