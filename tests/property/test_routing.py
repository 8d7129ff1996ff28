"""Invariants of routing: the ranking's order, and an index that agrees with a slow model."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cache_router.index import PrefixIndex
from cache_router.policy import Query, RoutingPolicy, rank
from cache_router.replica import ReplicaLoad
from freehold.protocol import Incarnation
from tests.support.engine_values import keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freehold.protocol import BlockKey

NAMES = ("a", "b", "c", "d")
POLICY = RoutingPolicy()

loads_of = st.builds(
    ReplicaLoad,
    replica_id=st.just(""),
    incarnation=st.none(),
    queued_prefill_tokens=st.floats(0, 1e5),
    num_requests=st.integers(0, 100),
    prefill_tokens_per_s=st.sampled_from([0.0, 100.0, 2000.0, 1e5]),
    decode_step_s=st.sampled_from([0.0, 0.005, 0.05]),
    cache_fill=st.floats(0, 1),
)
fleets = st.lists(loads_of, min_size=1, max_size=4).map(
    lambda loads: [
        replace(load, replica_id=name, incarnation=Incarnation(name))
        for name, load in zip(NAMES, loads, strict=False)
    ]
)
queries = st.builds(
    Query,
    num_tokens=st.integers(1, 4000),
    block_size=st.sampled_from([16, 32, 64]),
    affinity=st.none() | st.sampled_from(["k1", "k2"]),
)
held = st.dictionaries(st.sampled_from([Incarnation(n) for n in NAMES]), st.integers(0, 300))
seeds = st.integers(0, 5)


def order(
    query: Query, loads: Sequence[ReplicaLoad], hits: Mapping[Incarnation, int], seed: int
) -> list[str]:
    return [r.replica_id for r in rank(query, loads, hits, POLICY, Random(seed))]


@given(queries, fleets, held, seeds)
def test_a_ranking_permutes_its_candidates(
    query: Query, loads: list[ReplicaLoad], hits: dict[Incarnation, int], seed: int
) -> None:
    assert sorted(order(query, loads, hits, seed)) == sorted(load.replica_id for load in loads)


@given(queries, fleets, held, seeds, st.floats(0, 1e5), st.integers(0, 50), st.data())
def test_more_load_never_improves_a_place(
    query: Query,
    loads: list[ReplicaLoad],
    hits: dict[Incarnation, int],
    seed: int,
    tokens: float,
    num_requests: int,
    data: st.DataObject,
) -> None:
    i = data.draw(st.integers(0, len(loads) - 1))
    more = replace(
        loads[i],
        queued_prefill_tokens=loads[i].queued_prefill_tokens + tokens,
        num_requests=loads[i].num_requests + num_requests,
    )
    loaded = [*loads[:i], more, *loads[i + 1 :]]
    before, after = order(query, loads, hits, seed), order(query, loaded, hits, seed)
    assert after.index(more.replica_id) >= before.index(more.replica_id)


@given(queries, fleets, held, seeds, st.integers(0, 300), st.data())
def test_a_longer_match_never_worsens_a_place(
    query: Query,
    loads: list[ReplicaLoad],
    hits: dict[Incarnation, int],
    seed: int,
    more: int,
    data: st.DataObject,
) -> None:
    name = data.draw(st.sampled_from([load.replica_id for load in loads]))
    incarnation = Incarnation(name)
    longer = hits | {incarnation: hits.get(incarnation, 0) + more}
    before, after = order(query, loads, hits, seed), order(query, loads, longer, seed)
    assert after.index(name) <= before.index(name)


class IndexAgainstAModel(RuleBasedStateMachine):
    """Chains with common beginnings; the model is a list of keys an incarnation, oldest first."""

    MAX_BLOCKS = 12

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex()
        self.model: dict[Incarnation, list[BlockKey]] = {}

    incarnations = st.sampled_from([Incarnation(n) for n in NAMES])
    chains = st.tuples(st.integers(0, 6), st.sampled_from("xyz"), st.integers(0, 10)).map(
        lambda drawn: (*keys("shared", drawn[0]), *keys(f"{drawn[0]}{drawn[1]}", drawn[2]))
    )

    @rule(incarnation=incarnations)
    def register(self, incarnation: Incarnation) -> None:
        self.index.register(incarnation, self.MAX_BLOCKS)
        self.model.setdefault(incarnation, [])

    @rule(incarnation=incarnations)
    def drop(self, incarnation: Incarnation) -> None:
        self.index.drop(incarnation)
        self.model.pop(incarnation, None)

    @rule(incarnation=incarnations, chain=chains)
    def insert(self, incarnation: Incarnation, chain: tuple[BlockKey, ...]) -> None:
        self.index.insert(incarnation, chain)
        if (owned := self.model.get(incarnation)) is not None:
            kept = chain[: self.MAX_BLOCKS]
            owned[:] = [key for key in owned if key not in kept] + list(reversed(kept))
            del owned[: -self.MAX_BLOCKS]

    @rule(incarnation=incarnations, chain=chains, start=st.integers(0, 5))
    def remove(self, incarnation: Incarnation, chain: tuple[BlockKey, ...], start: int) -> None:
        self.index.remove(incarnation, chain[start:])
        if (owned := self.model.get(incarnation)) is not None:
            owned[:] = [key for key in owned if key not in chain[start:]]

    @precondition(lambda self: self.model)
    @rule(chain=chains)
    def match(self, chain: tuple[BlockKey, ...]) -> None:
        expected: dict[Incarnation, int] = {}
        for incarnation, owned in self.model.items():
            depth = next((i for i, key in enumerate(chain) if key not in owned), len(chain))
            if depth:
                expected[incarnation] = depth
        assert self.index.match(chain) == expected

    @invariant()
    def both_directions_agree_and_every_bound_holds(self) -> None:
        assert self.index.check()
        for incarnation, owned in self.model.items():
            assert self.index.num_blocks(incarnation) == len(owned)


TestIndexAgainstAModel = IndexAgainstAModel.TestCase
