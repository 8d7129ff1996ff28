"""Which tokens the next step computes: decodes first, then prompt chunks under a budget.

Decides admission, chunking and preemption over block tables; knows no tensor, no text and no
clock. Who is served first is a policy's choice, who may ride along the step budget's.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING

from freehold.engine.policy import FirstComeFirstServed
from freehold.engine.prefix_wait import ComputingPrefixes
from freehold.engine.schedule import Schedule, ScheduledRow, next_row

if TYPE_CHECKING:
    from collections.abc import Sequence as Seq

    from freehold.engine.config import EngineConfig
    from freehold.engine.policy import SchedulingPolicy
    from freehold.engine.sequence import RequestGroup, Sequence
    from freehold.engine.stats import Counters, StepTimes
    from freehold.kv.cache import KVCache
    from freehold.protocol import AccountId

_by_arrival = attrgetter("order")


class Scheduler:
    """Owns the two queues and every running sequence's table."""

    def __init__(
        self,
        kv: KVCache,
        config: EngineConfig,
        times: StepTimes,
        counters: Counters,
        policy: SchedulingPolicy | None = None,
    ) -> None:
        self._kv = kv
        self._config = config
        self._times = times
        self._counters = counters
        self._policy = policy or FirstComeFirstServed()
        self._computing = ComputingPrefixes(config.block_size)
        self._waiting: list[Sequence] = []  # both in order of arrival
        self._running: list[Sequence] = []

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def queued_prefill_tokens(self) -> int:
        """Tokens still to compute before every sequence decodes; hits not looked up count too."""
        return sum(
            max(1, seq.num_uncomputed - self._expected_hit(seq))
            for seq in (*self._waiting, *self._running)
            if not seq.is_decoding
        )

    def add(self, group: RequestGroup) -> None:
        """Queue a request. Its tables open now: a purge must stop its insertions from now on."""
        group.add_choices(self._kv.open)
        for sequence in group.sequences:
            insort(self._waiting, sequence, key=_by_arrival)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence in whatever state and give its blocks back; idempotent."""
        if sequence.is_running:
            self._release(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)

    def schedule(self) -> Schedule:
        """Choose the next step's rows; their slots are reserved.

        Every row must be answered by ``advance``, or its sequence by ``remove``.
        """
        rows: dict[Sequence, ScheduledRow] = {}
        self._schedule_decodes(rows)
        budget = self._times.prefill_budget(
            len(rows),
            max_step_tokens=self._config.max_step_tokens,
            max_step_s=self._config.max_step_ms / 1000,
            min_chunk_tokens=self._config.min_chunk_tokens,
        )
        budget = self._schedule_prompts(rows, budget)
        unplaceable = self._admit(rows, budget)
        decodes_first = sorted(rows.values(), key=attrgetter("is_prompt"))
        return Schedule(decodes_first, unplaceable)

    def advance(self, row: ScheduledRow, num_kept: int | None = None) -> None:
        """The row's K and V are written: publish full blocks.

        ``num_kept`` of its tokens stay (all by default); slots behind them are rolled back.
        """
        sequence = row.sequence
        end = row.end
        if num_kept is not None and num_kept < row.num_tokens:
            end = self._kv.truncate(sequence.table, row.start + num_kept)
        sequence.num_computed = end
        self._kv.publish(sequence.table, sequence.token_ids, end)
        self._computing.settle(sequence, row.start, end)

    def _schedule_decodes(self, rows: dict[Sequence, ScheduledRow]) -> None:
        """One token of every decoding sequence, whoever has to give way for that."""
        for sequence in tuple(self._running):
            while sequence.is_running and sequence.is_decoding:
                if self._kv.allocate(sequence.table, sequence.num_tokens):
                    rows[sequence] = next_row(sequence, 1)
                    break
                victim = self._policy.victim(self._running, sequence, self._debtors(sequence))
                rows.pop(victim, None)
                self._preempt(victim)

    def _schedule_prompts(self, rows: dict[Sequence, ScheduledRow], budget: int) -> int:
        """The next chunk of running prompts, oldest first; returns what is left of the budget."""
        for sequence in self._running:
            if budget > 0 and sequence not in rows:
                rows[sequence] = next_row(sequence, budget)
                budget -= rows[sequence].num_tokens
        return budget

    def _admit(self, rows: dict[Sequence, ScheduledRow], budget: int) -> list[Sequence]:
        for sequence in tuple(self._policy.admission_order(self._waiting)):
            if self._must_wait(sequence):
                continue
            if budget <= 0 or len(self._running) >= self._config.max_num_seqs:
                break
            if not self._place(sequence):
                if not self._running:
                    return [sequence]
                if sequence.group.request.tail.account_id in self._debtors(sequence):
                    continue  # its own ceiling: waiting for that is nobody else's business
                break
            rows[sequence] = next_row(sequence, budget)
            budget -= rows[sequence].num_tokens
        return []

    def _must_wait(self, sequence: Sequence) -> bool:
        """Another sequence is computing what this one would compute too."""
        siblings = sequence.group.sequences
        if any(sibling.has_prompt for sibling in siblings):
            return False  # it forks
        if any(not sibling.is_finished for sibling in siblings[: sequence.index]):
            return True
        if sequence.awaited is not None and self._computing.is_pending(sequence, sequence.awaited):
            return True
        sequence.awaited = None
        if sequence.num_prefix_waits < self._config.max_prefix_waits:
            sequence.awaited = self._computing.awaited_by(sequence)
        if sequence.awaited is None:
            return False
        sequence.num_prefix_waits += 1
        return True

    def _place(self, sequence: Sequence) -> bool:
        """Give a waiting sequence its table: shared or cached blocks, and slots for the rest.

        All known tokens get their slots at once, so that prompts never preempt each other midway.
        """
        group = sequence.group
        source = next((s for s in group.sequences if s.has_prompt), None)
        if source is not None:
            table = self._kv.fork(source.table, sequence.num_prompt - 1)
            num_computed = len(table.block_ids) * self._config.block_size
        else:
            table = sequence.table
            num_computed = self._kv.attach(table, sequence.num_tokens - 1)
        if not self._leaves_room(sequence.num_tokens, len(table.block_ids)) or not (
            self._kv.allocate(table, sequence.num_tokens)
        ):
            self._kv.free(table)
            return False

        sequence.table, sequence.num_computed = table, num_computed
        self._waiting.remove(sequence)
        insort(self._running, sequence, key=_by_arrival)
        self._computing.claim(sequence)
        if group.cached_tokens is None:
            group.cached_tokens = num_computed
            self._counters.prompt_tokens += sequence.num_prompt
            self._counters.cached_tokens += num_computed
        return True

    def _debtors(self, sequence: Sequence) -> Seq[AccountId]:
        """Whose running sequences should give way for ``sequence`` to hold all its tokens."""
        shortfall = self._kv.shortfall(sequence.table, sequence.num_tokens)
        return () if shortfall is None else shortfall.victims

    def _leaves_room(self, num_tokens: int, num_held: int) -> bool:
        """Each running sequence could still grow by a block: else the newcomer is soon preempted."""
        num_new = -(-num_tokens // self._config.block_size) - num_held
        spare = self._kv.num_free + self._kv.num_cached - num_new
        return not self._running or spare >= len(self._running)

    def _preempt(self, sequence: Sequence) -> None:
        """Back to the queue without any block; what it had published it may find again."""
        self._release(sequence)
        sequence.num_computed = 0
        insort(self._waiting, sequence, key=_by_arrival)
        self._counters.num_preemptions += 1

    def _release(self, sequence: Sequence) -> None:
        self._computing.settle(sequence, sequence.num_computed, sequence.num_prompt)
        self._kv.free(sequence.table)
        self._running.remove(sequence)

    def _expected_hit(self, sequence: Sequence) -> int:
        awaited = sequence.awaited
        return 0 if awaited is None else (awaited.block + 1) * self._config.block_size
