"""rank: predicted time to first token decides, and says why."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from cache_router.policy import Query, Ranked, Reason, RoutingPolicy, rank, reusable_tokens
from cache_router.replica import ReplicaLoad
from freehold.protocol import Incarnation

if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPT = Query(num_tokens=1600, block_size=16)


def make_load(
    name: str,
    *,
    queued: float = 0,
    num_requests: int = 0,
    rate: float = 1000,
    cache_fill: float = 0,
) -> ReplicaLoad:
    return ReplicaLoad(name, Incarnation(name), queued, num_requests, rate, 0.02, cache_fill)


def ranked(*loads: ReplicaLoad, query: Query = PROMPT, seed: int = 0, **hits: int) -> list[Ranked]:
    by_incarnation: Mapping[Incarnation, int] = {Incarnation(k): v for k, v in hits.items()}
    return rank(query, loads, by_incarnation, RoutingPolicy(), Random(seed))


def test_nobody_to_rank() -> None:
    assert ranked() == []


def test_the_prediction_is_queue_and_missed_tokens_at_the_measured_rate_and_decode_steps() -> None:
    load = make_load("a", queued=500, num_requests=3, rate=2000)
    (only,) = ranked(load, a=50)
    assert only.hit_tokens == 800
    assert only.predicted_ttft_s == (500 + 800) / 2000 + 3 * 0.02
    assert only.reason is Reason.ONLY_REPLICA


def test_an_unmeasured_replica_is_given_the_default_rate() -> None:
    policy = RoutingPolicy()
    (only,) = ranked(make_load("a", rate=0))
    assert only.predicted_ttft_s == PROMPT.num_tokens / policy.default_prefill_tokens_per_s


def test_a_new_replica_is_taken_for_as_fast_as_the_others_and_gets_its_share() -> None:
    first, second = ranked(make_load("old", rate=50_000, num_requests=1), make_load("new", rate=0))
    assert first.replica_id == "new"
    assert first.predicted_ttft_s == PROMPT.num_tokens / 50_000
    assert second.replica_id == "old"


def test_a_prefix_attracts() -> None:
    first, second = ranked(make_load("a"), make_load("b"), b=80)
    assert (first.replica_id, first.reason) == ("b", Reason.PREFIX_HIT)
    assert second.reason is Reason.RUNNER_UP


def test_a_prefix_behind_a_queue_longer_than_it_saves_does_not() -> None:
    first, _ = ranked(make_load("a"), make_load("b", queued=1500), b=80)
    assert (first.replica_id, first.reason) == ("a", Reason.BALANCE)


def test_decoding_requests_push_away_too() -> None:
    first, _ = ranked(make_load("a"), make_load("b", num_requests=70), b=80)
    assert (first.replica_id, first.reason) == ("a", Reason.BALANCE)


def test_a_match_of_less_than_a_tenth_is_ignored_but_reported() -> None:
    first, second = ranked(make_load("a", queued=20), make_load("b", queued=100), b=9)
    assert (first.replica_id, first.reason) == ("a", Reason.LEAST_WAIT)
    assert second.hit_tokens == 9 * 16


def test_a_faster_replica_wins_a_cold_prompt() -> None:
    first, _ = ranked(make_load("a", rate=500), make_load("b", rate=1000))
    assert (first.replica_id, first.reason) == ("b", Reason.LEAST_WAIT)


def test_a_tie_goes_to_the_emptier_cache() -> None:
    first, _ = ranked(make_load("a", cache_fill=0.9), make_load("b", cache_fill=0.1))
    assert (first.replica_id, first.reason) == ("b", Reason.TIE)


def test_a_full_tie_goes_to_each_in_turn_by_chance() -> None:
    winners = {ranked(make_load("a"), make_load("b"), seed=s)[0].replica_id for s in range(20)}
    assert winners == {"a", "b"}


def test_the_hint_decides_ties_the_same_way_whatever_the_chance() -> None:
    loads = [make_load(name) for name in "abcd"]
    for key in ("k1", "k2", "k3"):
        query = Query(1600, 16, affinity=key)
        firsts = [ranked(*loads, query=query, seed=seed)[0] for seed in range(5)]
        assert len({first.replica_id for first in firsts}) == 1
        assert {first.reason for first in firsts} == {Reason.STICKY}


def test_a_leaving_replica_moves_only_its_own_keys() -> None:
    loads = [make_load(name) for name in "abcd"]
    for i in range(50):
        query = Query(1600, 16, affinity=f"k{i}")
        before = ranked(*loads, query=query)
        after = ranked(*[load for load in loads if load.replica_id != "a"], query=query)
        if before[0].replica_id != "a":
            assert after[0].replica_id == before[0].replica_id


def test_the_hint_does_not_outweigh_a_wait() -> None:
    query = Query(1600, 16, affinity="k")
    favourite = ranked(make_load("a"), make_load("b"), query=query)[0].replica_id
    loads = [make_load(name, queued=500 if name == favourite else 0) for name in "ab"]
    assert ranked(*loads, query=query)[0].replica_id != favourite


def test_at_least_one_token_of_a_prompt_is_computed() -> None:
    assert reusable_tokens(Query(32, 16), 2) == 16
    assert reusable_tokens(Query(33, 16), 2) == 32
    assert reusable_tokens(Query(1, 16), 0) == 0
