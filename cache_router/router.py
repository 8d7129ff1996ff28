"""One gateway's knowledge of one model's replicas, and the decisions made from it.

Joins the index, the views and the policy, and keeps the index true by the replies (the *mirror*:
until replicas publish their block events, what a reply says is all that is known). Pure: clock
and random generator come in by constructor; refuses to know how a replica is called.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cache_router.index import PrefixIndex
from cache_router.policy import Query, Ranked, Reason, RoutingPolicy, rank
from cache_router.replica import OwnWork, ReplicaView
from freehold.protocol import CacheMode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from random import Random

    from freehold.protocol import (
        BlockKey,
        GenerateRequest,
        Incarnation,
        ReplicaReport,
        RequestId,
        Usage,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _InFlight:
    """A request that was given a replica: ``route``, the first of ``ranking`` unless it moved."""

    request: GenerateRequest
    ranking: Sequence[Ranked]
    route: Ranked
    incarnation: Incarnation | None


@dataclass(frozen=True, slots=True)
class RouterLimits:
    """How long a replica may be silent."""

    max_report_age_s: float = 5.0
    """Before others that did report are preferred to it."""
    lost_after_s: float = 20.0
    """Before it counts as lost."""


@dataclass(slots=True)
class RouterStats:
    """Counted since the start, for metrics."""

    decisions: Counter[Reason] = field(default_factory=Counter[Reason])
    num_moved: int = 0
    """Serve sent a request to another replica than the first choice."""
    num_lost: int = 0
    """Replicas that died or became unreachable."""
    hit_tokens_expected: int = 0
    hit_tokens_found: int = 0


class CacheRouter:
    """Not thread-safe: whoever shares it brings the lock. Every method is local and quick."""

    def __init__(
        self,
        clock: Callable[[], float],
        rng: Random,
        policy: RoutingPolicy | None = None,
        limits: RouterLimits | None = None,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._policy = policy or RoutingPolicy()
        self._limits = limits or RouterLimits()
        self._index = PrefixIndex()
        self._views: dict[str, ReplicaView] = {}
        self._in_flight: dict[RequestId, _InFlight] = {}
        self.stats = RouterStats()

    # Replicas come and go.

    @property
    def replica_ids(self) -> tuple[str, ...]:
        return tuple(self._views)

    @property
    def views(self) -> tuple[ReplicaView, ...]:
        return tuple(self._views.values())

    def set_replicas(self, replica_ids: Iterable[str]) -> None:
        """The replicas that exist now; what is known of the others is dropped with them."""
        wanted = dict.fromkeys(replica_ids)
        for replica_id in [r for r in self._views if r not in wanted]:
            self._forget(self._views.pop(replica_id))
        for replica_id in wanted:
            self._views.setdefault(replica_id, ReplicaView(replica_id))

    def lose(self, replica_id: str) -> None:
        """It died or cannot be reached: no decision counts on it until it reports again."""
        view = self._views.get(replica_id)
        if view is not None and not view.is_lost:
            self._forget(view)
            view.lose(self._clock())
            self.stats.num_lost += 1

    def expire(self) -> list[str]:
        """Lose the replicas that have been silent for too long; returns which."""
        now_s = self._clock()
        silent = [
            view.replica_id
            for view in self._views.values()
            if view.is_silent(now_s, self._limits.lost_after_s)
        ]
        for replica_id in silent:
            self.lose(replica_id)
        return silent

    def own_work(self, replica_id: str) -> OwnWork:
        """What of ours is there now: pass it to ``observe`` with the report asked for now."""
        view = self._views.get(replica_id)
        return OwnWork() if view is None else view.own(self._clock())

    def observe(
        self, replica_id: str, report: ReplicaReport, *, sent_at_s: float, own: OwnWork
    ) -> None:
        """Adopt a report. Another incarnation than before has an empty cache."""
        view = self._views.get(replica_id)
        if view is None:
            return
        before = view.incarnation
        view.observe(report, sent_at_s=sent_at_s, now_s=self._clock(), own=own)
        if view.incarnation != before:
            if before is not None:
                self._index.drop(before)
            if view.incarnation is not None:
                self._index.register(view.incarnation, report.card.num_blocks)

    # The life of a request: decide, (moved), prefilled, finished.

    def decide(
        self, request: GenerateRequest, affinity: str | None = None, exclude: Collection[str] = ()
    ) -> Sequence[Ranked]:
        """Rank the eligible replicas, best first, and reserve the first; empty when there is none.

        A request that was decided before gives its earlier reservation back.
        """
        self.finished(request.request_id)
        views = self._eligible(request, exclude)
        if not views:
            return ()
        now_s = self._clock()
        block_size = next(view.card.block_size for view in views if view.card is not None)
        query = Query(len(request.token_ids), block_size, _scoped(affinity, request))
        hits = {} if request.cache is CacheMode.OFF else self._index.match(request.block_keys)
        ranking = rank(query, [v.load(now_s) for v in views], hits, self._policy, self._rng)
        self._in_flight[request.request_id] = self._reserve(request, ranking, ranking[0])
        self.stats.decisions[ranking[0].reason] += 1
        return ranking

    def order(self, request_id: RequestId) -> Sequence[str] | None:
        """The ranking of a decided request, without those that were lost since; else None."""
        entry = self._in_flight.get(request_id)
        if entry is None:
            return None
        return [r.replica_id for r in entry.ranking if self._is_alive(r.replica_id)]

    def route(self, request_id: RequestId) -> Ranked | None:
        entry = self._in_flight.get(request_id)
        return None if entry is None else entry.route

    def moved(self, request_id: RequestId, replica_id: str) -> None:
        """The request was accepted there: move the reservation if that is another replica."""
        entry = self._in_flight.get(request_id)
        if entry is None or entry.route.replica_id == replica_id:
            return
        taken = next((r for r in entry.ranking if r.replica_id == replica_id), None)
        if taken is None or replica_id not in self._views:
            return
        self._release(entry)
        self._in_flight[request_id] = self._reserve(entry.request, entry.ranking, taken)
        self.stats.num_moved += 1

    def prefilled(self, request_id: RequestId, usage: Usage) -> None:
        """The first delta came: its prompt is computed, and ``usage`` says what was cached."""
        entry = self._in_flight.get(request_id)
        if entry is None:
            return
        view = self._views.get(entry.route.replica_id)
        if view is None:
            return
        view.prefilled(request_id, self._clock())
        if view.card is not None:
            block_size = view.card.block_size
            self._mirror(entry, view, usage.cached // block_size, block_size)
        self.stats.hit_tokens_expected += entry.route.hit_tokens
        self.stats.hit_tokens_found += usage.cached

    def finished(self, request_id: RequestId) -> None:
        """It ended, however; idempotent."""
        entry = self._in_flight.pop(request_id, None)
        if entry is not None:
            self._release(entry)

    @property
    def num_in_flight(self) -> int:
        return len(self._in_flight)

    def hits(self, keys: Sequence[BlockKey]) -> dict[str, int]:
        """Leading blocks of a chain by replica, for explanations and tests."""
        held = self._index.match(keys)
        return {
            view.replica_id: held[view.incarnation]
            for view in self._views.values()
            if view.incarnation is not None and view.incarnation in held
        }

    def _mirror(
        self, entry: _InFlight, view: ReplicaView, cached_blocks: int, block_size: int
    ) -> None:
        keys, incarnation = entry.request.block_keys, entry.incarnation
        if incarnation is None or incarnation != view.incarnation:
            return  # computed by a process that is gone
        if entry.request.cache is CacheMode.ON:
            # Every full block was found or computed just now, and the engine publishes them all.
            self._index.insert(incarnation, keys)
        elif entry.request.cache is CacheMode.NO_STORE:
            # It looked and did not find: the replica has evicted what the index still had.
            self._index.remove(
                incarnation, keys[cached_blocks : entry.route.hit_tokens // block_size]
            )

    def _eligible(self, request: GenerateRequest, exclude: Collection[str]) -> list[ReplicaView]:
        """Alive, healthy, of the request's very model; fresh ones only, if there are any.

        Without any fresh report the old ones must do: refusing all traffic because reports are
        late would turn a slow network into an outage.
        """
        now_s = self._clock()
        able = [
            view
            for view in self._views.values()
            if view.replica_id not in exclude
            and view.report is not None
            and view.report.healthy
            and view.report.card.fingerprint == request.fingerprint
        ]
        fresh = [view for view in able if not view.is_silent(now_s, self._limits.max_report_age_s)]
        return fresh or able

    def _is_alive(self, replica_id: str) -> bool:
        view = self._views.get(replica_id)
        return view is not None and not view.is_lost

    def _reserve(
        self, request: GenerateRequest, ranking: Sequence[Ranked], route: Ranked
    ) -> _InFlight:
        view = self._views[route.replica_id]
        missed = len(request.token_ids) - route.hit_tokens
        view.reserve(request.request_id, missed, self._clock())
        return _InFlight(request, ranking, route, view.incarnation)

    def _release(self, entry: _InFlight) -> None:
        view = self._views.get(entry.route.replica_id)
        if view is not None:
            view.release(entry.request.request_id, self._clock())

    def _forget(self, view: ReplicaView) -> None:
        if view.incarnation is not None:
            self._index.drop(view.incarnation)


def _scoped(affinity: str | None, request: GenerateRequest) -> str | None:
    """Two tenants that send the same hint do not follow each other."""
    return None if affinity is None else f"{request.tail.account_id}/{affinity}"
