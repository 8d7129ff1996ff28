"""One replica as this gateway sees it: its last report, corrected by what we sent it since.

Decides how much work is queued there and whether it may get any; refuses to know the cache and
the choice. Reports are absolute, so every error here heals with the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freehold.protocol import Incarnation, ModelCard, ReplicaReport, RequestId


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What the policy sees of a replica, at one instant. Rates are 0 until measured."""

    replica_id: str
    incarnation: Incarnation | None
    queued_prefill_tokens: float
    num_requests: int
    """Running and waiting."""
    prefill_tokens_per_s: float
    decode_step_s: float
    cache_fill: float
    """Share of the pool that holds anything, 0 to 1."""


@dataclass(frozen=True, slots=True)
class OwnWork:
    """What this gateway has there; compared with a report to tell what others have there."""

    prefill_tokens: float = 0.0
    num_requests: int = 0


class ReplicaView:
    """Own reservations are exact and immediate; only others' work is taken from reports.

    A report says how much is queued in all. What we had there ourselves while it was made is
    subtracted; the rest is others', and drains at the measured rate as the report ages.
    """

    def __init__(self, replica_id: str) -> None:
        self.replica_id = replica_id
        self._report: ReplicaReport | None = None
        self._reported_at_s = 0.0
        self._lost_at_s: float | None = None
        self._others = OwnWork()
        self._prefilling: dict[RequestId, int] = {}
        """Tokens to compute, in the order of arrival: the first one is being computed."""
        self._decoding: set[RequestId] = set()
        self._progress_at_s = 0.0
        """When the first of ``_prefilling`` became the first."""

    @property
    def report(self) -> ReplicaReport | None:
        """The last one; None before the first, and of a lost replica."""
        return self._report

    @property
    def card(self) -> ModelCard | None:
        return None if self._report is None else self._report.card

    @property
    def incarnation(self) -> Incarnation | None:
        return None if self._report is None else self._report.incarnation

    @property
    def is_lost(self) -> bool:
        return self._lost_at_s is not None

    def is_silent(self, now_s: float, max_age_s: float) -> bool:
        """It has reported, but not for so long."""
        return self._report is not None and now_s - self._reported_at_s > max_age_s

    def observe(
        self, report: ReplicaReport, *, sent_at_s: float, now_s: float, own: OwnWork
    ) -> None:
        """Adopt a report that was asked for at ``sent_at_s``, when ``own`` was ours there.

        One that was asked for before the replica was lost is ignored: it tells of a dead process.
        """
        if self._lost_at_s is not None and sent_at_s <= self._lost_at_s:
            return
        self._lost_at_s = None
        self._report = report
        self._reported_at_s = now_s
        mine = self.own(now_s)
        # Ours came and went while the report travelled: take the larger of both ends as ours, so
        # that no request is counted twice.
        self._others = OwnWork(
            max(0.0, report.queued_prefill_tokens - max(own.prefill_tokens, mine.prefill_tokens)),
            max(
                0,
                report.num_running + report.num_waiting - max(own.num_requests, mine.num_requests),
            ),
        )

    def lose(self, now_s: float) -> None:
        """The process is dead or unreachable: nothing is known of it until it reports again."""
        self._lost_at_s = now_s
        self._report = None
        self._others = OwnWork()

    def reserve(self, request_id: RequestId, tokens: int, now_s: float) -> None:
        if not self._prefilling:
            self._progress_at_s = now_s
        self._prefilling[request_id] = tokens

    def prefilled(self, request_id: RequestId, now_s: float) -> None:
        """Its prompt is computed; from now on it only decodes."""
        if self._prefilling.pop(request_id, None) is not None:
            self._decoding.add(request_id)
            self._progress_at_s = now_s

    def release(self, request_id: RequestId, now_s: float) -> None:
        """It ended, however; idempotent."""
        if self._prefilling.pop(request_id, None) is not None:
            self._progress_at_s = now_s
        self._decoding.discard(request_id)

    def own(self, now_s: float) -> OwnWork:
        queued = float(sum(self._prefilling.values()))
        if self._prefilling:
            first = next(iter(self._prefilling.values()))
            done = self._rate * max(0.0, now_s - self._progress_at_s)
            queued -= min(float(first), done)
        return OwnWork(queued, len(self._prefilling) + len(self._decoding))

    def load(self, now_s: float) -> ReplicaLoad:
        own = self.own(now_s)
        drained = self._rate * max(0.0, now_s - self._reported_at_s)
        report = self._report
        return ReplicaLoad(
            replica_id=self.replica_id,
            incarnation=self.incarnation,
            queued_prefill_tokens=own.prefill_tokens
            + max(0.0, self._others.prefill_tokens - drained),
            num_requests=own.num_requests + self._others.num_requests,
            prefill_tokens_per_s=self._rate,
            decode_step_s=0.0 if report is None else report.decode_step_s,
            cache_fill=0.0 if report is None else 1 - report.free_blocks / report.card.num_blocks,
        )

    @property
    def _rate(self) -> float:
        return 0.0 if self._report is None else self._report.prefill_tokens_per_s
