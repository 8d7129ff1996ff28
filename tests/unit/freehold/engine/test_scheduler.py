from __future__ import annotations

from typing import TYPE_CHECKING, Any

from freehold.engine.policy import FirstComeFirstServed
from freehold.engine.scheduler import Scheduler
from freehold.engine.sequence import RequestGroup, Sequence
from freehold.engine.stats import Counters, StepTimes
from freehold.kv.cache import KVCache
from freehold.protocol import AccountId, AccountPolicy
from tests.support.engines import ids_of, make_config, make_request

if TYPE_CHECKING:
    from collections.abc import Sequence as Seq

    from freehold.engine.policy import SchedulingPolicy
    from freehold.engine.schedule import Schedule


class OldestGivesWay(FirstComeFirstServed):
    def victim(
        self, running: Seq[Sequence], claimant: Sequence, debtors: Seq[AccountId]
    ) -> Sequence:
        return running[0]


class LastComeFirstServed(FirstComeFirstServed):
    def admission_order(self, waiting: Seq[Sequence]) -> Seq[Sequence]:
        return waiting[::-1]


class Desk:
    """A scheduler, and a stand-in for the model that appends one token where logits were due."""

    def __init__(self, policy: SchedulingPolicy | None = None, **config: Any) -> None:
        self.config = make_config(**config)
        self.kv = KVCache(self.config.num_blocks, self.config.block_size)
        self.times = StepTimes()
        self.counters = Counters()
        self.scheduler = Scheduler(self.kv, self.config, self.times, self.counters, policy)
        self.num_groups = 0

    def add(self, text: str, **request: Any) -> RequestGroup:
        group = RequestGroup(make_request(ids_of(text), **request), self.num_groups, 0.0)
        self.num_groups += 1
        self.scheduler.add(group)
        return group

    def step(self) -> Schedule:
        schedule = self.scheduler.schedule()
        for row in schedule.rows:
            self.scheduler.advance(row)
            if row.num_logits:
                row.sequence.token_ids.append(9)
        return schedule

    def rows(self) -> list[tuple[int, int, int, bool]]:
        """(request, start, end, is a prompt) of the next step."""
        return [
            (row.sequence.group.number, row.start, row.end, row.is_prompt)
            for row in self.step().rows
        ]


def test_decodes_come_first_then_chunks_under_the_budget() -> None:
    desk = Desk(max_step_tokens=10)
    desk.add("aaaaaa")
    desk.add("b" * 20)
    assert desk.rows() == [(0, 0, 6, True), (1, 0, 4, True)]
    assert desk.rows() == [(0, 6, 7, False), (1, 4, 13, True)]
    assert desk.rows() == [(0, 7, 8, False), (1, 13, 20, True)]
    assert desk.rows() == [(0, 8, 9, False), (1, 20, 21, False)]


def test_a_chunk_beside_decodes_keeps_to_the_measured_time() -> None:
    desk = Desk(max_step_tokens=64, min_chunk_tokens=4, max_step_ms=50)
    desk.times.prefill_tokens_per_s, desk.times.decode_step_s = 300.0, 0.02
    desk.add("a")
    desk.step()
    desk.add("b" * 30)
    assert desk.rows() == [(0, 1, 2, False), (1, 0, 9, True)]


def test_no_more_run_together_than_allowed() -> None:
    desk = Desk(max_num_seqs=2)
    groups = [desk.add(letter * 5) for letter in "abc"]
    desk.step()
    assert [group.sequences[0].is_running for group in groups] == [True, True, False]
    desk.scheduler.remove(groups[0].sequences[0])
    desk.step()
    assert groups[2].sequences[0].is_running


def test_the_youngest_is_preempted_and_comes_back() -> None:
    desk = Desk(num_blocks=5)
    old, young = desk.add("aaaaaaa").sequences[0], desk.add("bbb").sequences[0]
    while not desk.counters.num_preemptions:
        desk.step()
    assert old.is_running
    assert not young.is_running
    desk.scheduler.remove(old)
    desk.step()
    assert young.is_running
    assert young.num_computed == young.num_tokens - 1


def test_what_a_victim_was_to_compute_is_dropped_from_the_step() -> None:
    desk = Desk(OldestGivesWay(), num_blocks=5)
    old, young = desk.add("aaaaaaa").sequences[0], desk.add("bbbbbb").sequences[0]
    desk.step()
    while not desk.counters.num_preemptions:
        schedule = desk.step()
        assert all(row.sequence.is_running for row in schedule.rows)
    assert (old.is_running, young.is_running) == (False, True)


def test_admission_order_is_the_policys() -> None:
    desk = Desk(LastComeFirstServed(), max_num_seqs=1)
    desk.add("aaaa")
    desk.add("bbbb")
    assert desk.rows() == [(1, 0, 4, True)]


def test_an_account_below_its_floor_takes_from_the_one_above() -> None:
    desk = Desk(num_blocks=8)
    floor = {AccountId("tn_b"): AccountPolicy(version=1, floor_blocks=4)}
    mine = desk.add("b" * 7, tenant="b", policies=floor).sequences[0]
    theirs = [desk.add(letter * 7, tenant="a").sequences[0] for letter in "xy"]
    while not desk.counters.num_preemptions:
        desk.step()
    assert mine.is_running
    assert [sequence.is_running for sequence in theirs] == [True, False]


def test_a_newcomer_leaves_every_running_sequence_a_block_to_grow() -> None:
    desk = Desk(num_blocks=4)
    desk.add("aaaaaaaa")
    desk.step()
    desk.add("bbbbbbbb")
    assert desk.rows() == [(0, 8, 9, False)]


def test_rolled_back_tokens_are_computed_again() -> None:
    desk = Desk()
    sequence = desk.add("abcdefgh").sequences[0]
    (row,) = desk.scheduler.schedule().rows
    desk.scheduler.advance(row, num_kept=5)
    assert sequence.num_computed == 5
    assert desk.rows() == [(0, 5, 8, True)]


def test_queued_tokens_count_what_is_still_to_compute() -> None:
    desk = Desk(max_step_tokens=8)
    desk.add("a" * 20)
    desk.add("b" * 5)
    assert desk.scheduler.queued_prefill_tokens == 25
    desk.step()
    assert desk.scheduler.queued_prefill_tokens == 17


def test_awaited_tokens_are_not_counted_twice() -> None:
    desk = Desk(max_step_tokens=8)
    for _ in range(3):
        desk.add("a" * 22)
    desk.step()
    # The first has 14 left; the others wait for its five full blocks and compute two each.
    assert desk.scheduler.queued_prefill_tokens == 14 + 2 + 2


def test_nobody_waits_more_often_than_allowed() -> None:
    desk = Desk(max_step_tokens=8, max_prefix_waits=1)
    producer, second, third = (desk.add("a" * 22).sequences[0] for _ in range(3))
    desk.step()
    assert second.awaited is not None
    assert third.awaited is not None
    desk.scheduler.remove(producer)
    desk.step()
    assert second.is_running
    assert third.awaited is None, "it has waited once, now it takes its turn"


def test_removing_is_idempotent_in_any_state() -> None:
    desk = Desk(max_num_seqs=1)
    groups = [desk.add("aaaa"), desk.add("bbbb")]
    desk.step()
    for group in (*groups, *groups):
        desk.scheduler.remove(group.sequences[0])
    assert (desk.scheduler.num_running, desk.scheduler.num_waiting) == (0, 0)
    assert desk.kv.num_active == 0
