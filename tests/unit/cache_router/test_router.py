"""CacheRouter: decisions, reservations, and an index kept true by the replies."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from cache_router.policy import Reason
from cache_router.replica import OwnWork
from cache_router.router import CacheRouter
from freehold.protocol import (
    DEVICE,
    AccountId,
    CacheMode,
    EpochId,
    GenerateRequest,
    Owner,
    RequestId,
    Usage,
)
from tests.support.engine_values import BLOCK_SIZE, keys, make_card, make_report, make_request


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Fleet:
    """A router with replicas ``a``, ``b``, … that have reported once."""

    def __init__(self, names: str = "ab") -> None:
        self.clock = Clock()
        self.router = CacheRouter(self.clock, Random(0))
        self.router.set_replicas(names)
        for name in names:
            self.report(name)

    def report(self, name: str, incarnation: str | None = None, *, healthy: bool = True) -> None:
        self.router.observe(
            name,
            make_report(incarnation or f"{name}-1", healthy=healthy),
            sent_at_s=self.clock.now_s,
            own=OwnWork(),
        )

    def decide(self, request: GenerateRequest) -> str:
        return self.router.decide(request)[0].replica_id

    def answer(self, request: GenerateRequest, cached_blocks: int = 0) -> None:
        usage = Usage(len(request.token_ids), {DEVICE: cached_blocks * BLOCK_SIZE})
        self.router.prefilled(request.request_id, usage)
        self.router.finished(request.request_id)

    def serve(self, request: GenerateRequest) -> str:
        replica_id = self.decide(request)
        self.answer(request)
        return replica_id


def other(name: str) -> str:
    return "b" if name == "a" else "a"


def test_a_prompt_returns_to_where_it_was_computed() -> None:
    fleet = Fleet()
    chain = keys("x", 10)
    home = fleet.serve(make_request("r0", chain))
    for i in range(1, 6):
        (first, _) = fleet.router.decide(make_request(f"r{i}", chain))
        assert (first.replica_id, first.hit_tokens) == (home, 160)
        assert first.reason is Reason.PREFIX_HIT
        fleet.answer(make_request(f"r{i}", chain), cached_blocks=10)
    assert fleet.router.stats.decisions[Reason.PREFIX_HIT] == 5


def test_nothing_is_known_of_a_prompt_before_its_first_delta() -> None:
    fleet = Fleet()
    request = make_request("r0", keys("x", 10))
    fleet.decide(request)
    assert fleet.router.hits(request.block_keys) == {}
    fleet.router.finished(request.request_id)
    assert fleet.router.hits(request.block_keys) == {}


def test_requests_that_must_not_be_stored_are_not_remembered() -> None:
    fleet = Fleet()
    chain = keys("x", 10)
    fleet.serve(make_request("r0", chain, cache=CacheMode.OFF))
    fleet.serve(make_request("r1", chain, cache=CacheMode.NO_STORE))
    assert fleet.router.hits(chain) == {}


def test_a_request_without_cache_does_not_look_for_one() -> None:
    fleet = Fleet()
    chain = keys("x", 10)
    fleet.serve(make_request("r0", chain))
    first, second = fleet.router.decide(make_request("r1", chain, cache=CacheMode.OFF))
    assert first.hit_tokens == second.hit_tokens == 0


def test_what_a_reply_did_not_find_is_forgotten() -> None:
    fleet = Fleet()
    chain = keys("x", 10)
    home = fleet.serve(make_request("r0", chain))
    look = make_request("r1", chain, cache=CacheMode.NO_STORE)
    assert fleet.decide(look) == home
    fleet.answer(look, cached_blocks=4)
    assert fleet.router.hits(chain) == {home: 4}


def test_a_burst_spreads() -> None:
    fleet = Fleet("abcd")
    chosen = [fleet.decide(make_request(f"r{i}", keys(f"c{i}", 20))) for i in range(8)]
    assert {name: chosen.count(name) for name in "abcd"} == dict.fromkeys("abcd", 2)


def test_a_reservation_ends_with_its_request_and_only_once() -> None:
    fleet = Fleet()
    request = make_request("r0", keys("x", 10))
    fleet.decide(request)
    fleet.router.finished(request.request_id)
    fleet.router.finished(request.request_id)
    assert all(view.load(fleet.clock()).num_requests == 0 for view in fleet.router.views)
    assert fleet.router.num_in_flight == 0


def test_deciding_again_moves_the_reservation() -> None:
    fleet = Fleet()
    request = make_request("r0", keys("x", 10))
    first = fleet.decide(request)
    second = fleet.router.decide(request, exclude={first})
    assert [r.replica_id for r in second] == [other(first)]
    loads = {v.replica_id: v.load(fleet.clock()).num_requests for v in fleet.router.views}
    assert loads == {first: 0, other(first): 1}
    assert fleet.router.decide(request, exclude={"a", "b"}) == ()
    assert fleet.router.num_in_flight == 0


def test_the_reservation_and_the_prompt_follow_serves_choice() -> None:
    fleet = Fleet()
    request = make_request("r0", keys("x", 10))
    first = fleet.decide(request)
    fleet.router.moved(request.request_id, other(first))
    route = fleet.router.route(request.request_id)
    assert route is not None
    assert route.replica_id == other(first)
    fleet.answer(request)
    assert fleet.router.hits(request.block_keys) == {other(first): 10}
    assert fleet.router.stats.num_moved == 1


def test_staying_is_no_move() -> None:
    fleet = Fleet()
    request = make_request("r0")
    fleet.router.moved(request.request_id, fleet.decide(request))
    assert fleet.router.stats.num_moved == 0


def test_a_lost_replica_is_out_of_index_and_choice_at_once() -> None:
    fleet = Fleet()
    chain = keys("x", 10)
    home = fleet.serve(make_request("r0", chain))
    fleet.router.lose(home)
    fleet.router.lose(home)
    assert fleet.router.hits(chain) == {}
    assert fleet.decide(make_request("r1", chain)) == other(home)
    assert fleet.router.stats.num_lost == 1


def test_a_lost_replica_leaves_the_order_of_requests_decided_before() -> None:
    fleet = Fleet()
    request = make_request("r0")
    first = fleet.decide(request)
    assert fleet.router.order(request.request_id) == [first, other(first)]
    fleet.router.lose(first)
    assert fleet.router.order(request.request_id) == [other(first)]
    assert fleet.router.order(RequestId("nobody's")) is None


def test_a_late_reply_of_a_lost_replica_does_not_bring_its_blocks_back() -> None:
    fleet = Fleet()
    request = make_request("r0", keys("x", 10))
    home = fleet.decide(request)
    fleet.router.lose(home)
    fleet.clock.now_s += 1
    fleet.report(home, incarnation="restarted")
    fleet.answer(request)
    assert fleet.router.hits(request.block_keys) == {}


def test_a_new_incarnation_starts_empty() -> None:
    fleet = Fleet()
    chain = keys("x", 10)
    home = fleet.serve(make_request("r0", chain))
    fleet.report(home, incarnation="restarted")
    assert fleet.router.hits(chain) == {}


def test_a_replica_that_left_is_forgotten_with_its_requests() -> None:
    fleet = Fleet()
    chain = keys("x", 10)
    home = fleet.serve(make_request("r0", chain))
    running = make_request("r1", chain)
    assert fleet.decide(running) == home
    fleet.router.set_replicas([other(home)])
    fleet.answer(running)
    fleet.router.moved(running.request_id, home)
    assert fleet.router.hits(chain) == {}
    assert fleet.router.replica_ids == (other(home),)
    assert fleet.decide(make_request("r2", chain)) == other(home)


def test_unhealthy_replicas_and_other_models_get_nothing() -> None:
    fleet = Fleet()
    fleet.report("a", healthy=False)
    assert fleet.decide(make_request("r0")) == "b"
    report = make_report("b-1", card=make_card(fingerprint="fake-v2"))
    fleet.router.observe("b", report, sent_at_s=fleet.clock(), own=OwnWork())
    assert fleet.router.decide(make_request("r1")) == ()


def test_a_replica_that_never_reported_gets_nothing() -> None:
    fleet = Fleet("a")
    fleet.router.set_replicas("ab")
    assert [r.replica_id for r in fleet.router.decide(make_request("r0"))] == ["a"]


def test_silent_replicas_are_avoided_while_others_speak() -> None:
    fleet = Fleet()
    fleet.clock.now_s += 6
    fleet.report("b")
    assert [r.replica_id for r in fleet.router.decide(make_request("r0"))] == ["b"]


def test_when_all_are_silent_late_reports_must_do() -> None:
    fleet = Fleet()
    fleet.clock.now_s += 6
    assert len(fleet.router.decide(make_request("r0"))) == 2


def test_silence_ends_in_loss() -> None:
    fleet = Fleet()
    fleet.clock.now_s += 15
    fleet.report("b")
    fleet.clock.now_s += 6
    assert fleet.router.expire() == ["a"]
    assert fleet.router.expire() == []
    assert [r.replica_id for r in fleet.router.decide(make_request("r0"))] == ["b"]


def test_expected_and_found_hits_are_counted() -> None:
    fleet = Fleet()
    chain = keys("x", 10)
    fleet.serve(make_request("r0", chain))
    request = make_request("r1", chain)
    fleet.decide(request)
    fleet.answer(request, cached_blocks=7)
    assert fleet.router.stats.hit_tokens_expected == 160
    assert fleet.router.stats.hit_tokens_found == 112


def test_a_hint_is_scoped_to_the_tenant() -> None:
    """Two tenants that use one hint are spread independently: over many hints they differ."""

    def favourite(tenant: str, hint: str) -> str:
        request = replace(make_request("r"), tail=Owner(AccountId(tenant), EpochId("e")))
        fleet = Fleet("abcd")
        return fleet.router.decide(request, affinity=hint)[0].replica_id

    hints = [f"h{i}" for i in range(20)]
    assert [favourite("tn_a", h) for h in hints] == [favourite("tn_a", h) for h in hints]
    assert [favourite("tn_a", h) for h in hints] != [favourite("tn_b", h) for h in hints]
