"""ReplicaView: absolute reports, corrected by what was sent since."""

from __future__ import annotations

from cache_router.replica import OwnWork, ReplicaView
from freehold.protocol import RequestId
from tests.support.engine_values import make_report

R1, R2 = RequestId("r1"), RequestId("r2")


def make_view(at_s: float = 0.0, own: OwnWork | None = None, **report: float) -> ReplicaView:
    view = ReplicaView("replica")
    observe(view, at_s, own, **report)
    return view


def observe(view: ReplicaView, at_s: float, own: OwnWork | None = None, **report: float) -> None:
    fields = {name: int(value) for name, value in report.items()}
    view.observe(
        make_report("i", prefill_tokens_per_s=100.0, **fields),  # type: ignore[arg-type]
        sent_at_s=at_s,
        now_s=at_s,
        own=own or OwnWork(),
    )


def test_a_reservation_counts_at_once() -> None:
    view = make_view()
    view.reserve(R1, 300, now_s=0)
    view.reserve(R2, 200, now_s=0)
    load = view.load(0)
    assert load.queued_prefill_tokens == 500
    assert load.num_requests == 2


def test_the_first_in_line_is_computed_at_the_measured_rate_and_never_overdone() -> None:
    view = make_view()
    view.reserve(R1, 300, now_s=0)
    view.reserve(R2, 200, now_s=0)
    assert view.load(1).queued_prefill_tokens == 400
    assert view.load(60).queued_prefill_tokens == 200


def test_a_request_that_decodes_is_a_request_but_no_prefill() -> None:
    view = make_view()
    view.reserve(R1, 300, now_s=0)
    view.prefilled(R1, now_s=3)
    assert view.load(3).queued_prefill_tokens == 0
    assert view.load(3).num_requests == 1
    view.release(R1, now_s=4)
    view.release(R1, now_s=4)
    assert view.load(4).num_requests == 0


def test_the_next_one_starts_when_the_first_is_done() -> None:
    view = make_view()
    view.reserve(R1, 100, now_s=0)
    view.reserve(R2, 200, now_s=0)
    view.prefilled(R1, now_s=5)
    assert view.load(6).queued_prefill_tokens == 100


def test_others_work_is_what_a_report_has_beyond_ours_and_drains_with_age() -> None:
    view = ReplicaView("replica")
    view.reserve(R1, 300, now_s=0)
    observe(view, 0, view.own(0), queued_prefill_tokens=500, num_running=1, num_waiting=2)
    load = view.load(0)
    assert load.queued_prefill_tokens == 500
    assert load.num_requests == 3
    view.release(R1, now_s=0)
    assert view.load(0).queued_prefill_tokens == 200
    assert view.load(1).queued_prefill_tokens == 100
    assert view.load(9).queued_prefill_tokens == 0


def test_a_request_that_ended_while_the_report_travelled_is_not_taken_for_anothers() -> None:
    view = make_view()
    view.reserve(R1, 300, now_s=0)
    asked = view.own(0)
    view.release(R1, now_s=0)
    observe(view, 0, asked, queued_prefill_tokens=300, num_waiting=1)
    assert view.load(0).queued_prefill_tokens == 0
    assert view.load(0).num_requests == 0


def test_the_next_report_heals_every_error() -> None:
    view = make_view(queued_prefill_tokens=9000, num_waiting=30)
    observe(view, 1)
    assert view.load(1).queued_prefill_tokens == 0
    assert view.load(1).num_requests == 0


def test_a_lost_replica_is_not_revived_by_a_report_asked_for_before() -> None:
    view = make_view()
    view.lose(now_s=5)
    view.observe(make_report("i"), sent_at_s=4, now_s=6, own=OwnWork())
    assert view.is_lost
    assert view.report is None
    view.observe(make_report("j"), sent_at_s=6, now_s=7, own=OwnWork())
    assert not view.is_lost
    assert view.incarnation == "j"


def test_silence_is_counted_from_the_last_report() -> None:
    view = ReplicaView("replica")
    assert not view.is_silent(100, max_age_s=5)
    observe(view, 100)
    assert not view.is_silent(105, max_age_s=5)
    assert view.is_silent(106, max_age_s=5)


def test_cache_fill_is_the_share_of_blocks_in_use() -> None:
    view = make_view(free_blocks=250)
    assert view.load(0).cache_fill == 0.75
