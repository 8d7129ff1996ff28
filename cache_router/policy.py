"""Who computes a prompt soonest: predicted time to first token, never the hit rate alone.

    predicted = (queued + missed tokens) / prefill rate + requests there * one decode step

Pure: the index's answer, the loads and the random generator are arguments. Refuses to know how
replicas are reached and where the numbers come from.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from cache_router.replica import ReplicaLoad
    from freehold.protocol import Incarnation


class Reason(StrEnum):
    """Why a replica has its place in the ranking; bounded, so that it can label a metric."""

    ONLY_REPLICA = "only_replica"
    PREFIX_HIT = "prefix_hit"
    """No other holds a longer part of the prompt."""
    LEAST_WAIT = "least_wait"
    """Nobody holds a part that counts; the shortest wait decided."""
    BALANCE = "balance"
    """Another one holds a longer part, and is so busy that computing it here is sooner."""
    STICKY = "sticky"
    """A tie, decided by the client's ``prompt_cache_key``."""
    TIE = "tie"
    """A tie, decided by the emptier replica, then by chance."""
    RUNNER_UP = "runner_up"


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """The weights. ``default_*`` stand in until any replica has measured something."""

    min_hit_fraction: float = 0.1
    """A match of less than this share of the prompt is ignored: it would only glue requests that
    share a template's first lines to one replica."""
    tie_s: float = 0.010
    """Predictions within one such step are equal: they are not better than that."""
    decode_steps_per_request: float = 1.0
    """What a request that is there already costs a new one, in decode steps: prefill and decode
    share the replica, and the new one will decode beside it."""
    default_prefill_tokens_per_s: float = 1000.0
    default_decode_step_s: float = 0.02


@dataclass(frozen=True, slots=True)
class Query:
    """A prompt. ``affinity`` is the client's hint, None for none."""

    num_tokens: int
    block_size: int
    affinity: str | None = None


@dataclass(frozen=True, slots=True)
class Ranked:
    """One candidate. ``hit_tokens`` is what the index expects there, however small."""

    replica_id: str
    predicted_ttft_s: float
    hit_tokens: int
    reason: Reason


def rank(
    query: Query,
    loads: Sequence[ReplicaLoad],
    hits: Mapping[Incarnation, int],
    policy: RoutingPolicy,
    rng: Random,
) -> list[Ranked]:
    """All of ``loads``, best first. ``hits`` are leading blocks held, by incarnation."""
    speed = _typical_speed(loads, policy)
    candidates = [_score(query, load, hits, policy, speed, rng) for load in loads]
    candidates.sort(key=lambda candidate: candidate.order)
    if not candidates:
        return []
    first = Ranked(
        candidates[0].load.replica_id,
        candidates[0].predicted_s,
        candidates[0].hit_tokens,
        _reason(candidates, query),
    )
    rest = (
        Ranked(other.load.replica_id, other.predicted_s, other.hit_tokens, Reason.RUNNER_UP)
        for other in candidates[1:]
    )
    return [first, *rest]


def reusable_tokens(query: Query, num_blocks: int) -> int:
    """Of ``num_blocks`` leading blocks: at least one token of a prompt is always computed."""
    longest = max(0, query.num_tokens - 1) // query.block_size
    return min(num_blocks, longest) * query.block_size


@dataclass(frozen=True, slots=True)
class _Candidate:
    load: ReplicaLoad
    hit_tokens: int
    counted_tokens: int
    """``hit_tokens``, or 0 where they are too few to count."""
    predicted_s: float
    step: int
    """``predicted_s`` in whole ``tie_s``."""
    affinity: int
    """Smaller is closer; 0 for all without a hint."""
    chance: float

    @property
    def order(self) -> tuple[float, ...]:
        """A tie goes to the client's hint, to the longer match, to the emptier replica.

        Requests come before cache fill: a fill is as old as the report, and a burst would follow
        it to one replica until the next one.
        """
        load = self.load
        tie = (self.affinity, -self.counted_tokens, load.num_requests, load.cache_fill, self.chance)
        return (self.step, *tie)


@dataclass(frozen=True, slots=True)
class _Speed:
    prefill_tokens_per_s: float
    decode_step_s: float


def _typical_speed(loads: Sequence[ReplicaLoad], policy: RoutingPolicy) -> _Speed:
    """What to believe of a replica that has measured nothing: that it is like the others.

    Any constant would keep a new one idle (or flood it) on machines of another speed.
    """
    rates = [load.prefill_tokens_per_s for load in loads if load.prefill_tokens_per_s]
    steps = [load.decode_step_s for load in loads if load.decode_step_s]
    return _Speed(
        fmean(rates) if rates else policy.default_prefill_tokens_per_s,
        fmean(steps) if steps else policy.default_decode_step_s,
    )


def _score(
    query: Query,
    load: ReplicaLoad,
    hits: Mapping[Incarnation, int],
    policy: RoutingPolicy,
    typical: _Speed,
    rng: Random,
) -> _Candidate:
    num_blocks = 0 if load.incarnation is None else hits.get(load.incarnation, 0)
    hit_tokens = reusable_tokens(query, num_blocks)
    counted = hit_tokens if hit_tokens >= policy.min_hit_fraction * query.num_tokens else 0
    rate = load.prefill_tokens_per_s or typical.prefill_tokens_per_s
    step_s = load.decode_step_s or typical.decode_step_s
    prefill_s = (load.queued_prefill_tokens + query.num_tokens - counted) / rate
    predicted_s = prefill_s + load.num_requests * policy.decode_steps_per_request * step_s
    affinity = 0 if query.affinity is None else _distance(query.affinity, load.replica_id)
    return _Candidate(
        load,
        hit_tokens,
        counted,
        predicted_s,
        int(predicted_s / policy.tie_s),
        affinity,
        rng.random(),
    )


def _reason(candidates: Sequence[_Candidate], query: Query) -> Reason:
    best, others = candidates[0], candidates[1:]
    longest = max(candidate.counted_tokens for candidate in candidates)
    if not others:
        return Reason.ONLY_REPLICA
    if best.counted_tokens < longest:
        tied = any(o.step == best.step and o.counted_tokens > best.counted_tokens for o in others)
        return Reason.STICKY if tied else Reason.BALANCE
    if longest:
        return Reason.PREFIX_HIT
    if all(other.step > best.step for other in others):
        return Reason.LEAST_WAIT
    return Reason.TIE if query.affinity is None else Reason.STICKY


def _distance(affinity: str, replica_id: str) -> int:
    """Rendezvous hashing: a replica that comes or goes moves only its own share of keys."""
    digest = hashlib.blake2b(f"{len(affinity)}:{affinity}{replica_id}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little")
