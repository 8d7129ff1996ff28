"""May this request run now? The port; what is here admits everyone and keeps count.

Whoever is admitted holds a lease and settles it exactly once with what was really used, on every
path: answered, cancelled or failed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tenancy.usage import UsageRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freehold.protocol import RequestId, Usage
    from tenancy.ids import TenantId
    from tenancy.principal import Principal
    from tenancy.usage import Outcome, UsageSink


@dataclass(frozen=True, slots=True)
class Demand:
    """The most that a request can use; ``max_output_tokens`` counts all its choices."""

    model: str
    prompt_tokens: int
    max_output_tokens: int


class Lease(Protocol):
    async def settle(self, usage: Usage, outcome: Outcome) -> None:
        """Give back what was reserved and charge ``usage``. The first call counts, others do
        nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Admitted:
    lease: Lease


@dataclass(frozen=True, slots=True)
class Rejected:
    """``retry_after_s`` None: coming back does not help."""

    reason: str
    retry_after_s: float | None


class Admission(Protocol):
    async def admit(
        self, principal: Principal, request_id: RequestId, demand: Demand
    ) -> Admitted | Rejected: ...


class OpenAdmission:
    """No quota: admits every authenticated request and counts the running ones by tenant."""

    def __init__(self, usage_sink: UsageSink | None = None) -> None:
        self._usage_sink = usage_sink
        self._running: Counter[TenantId] = Counter()

    @property
    def running(self) -> Mapping[TenantId, int]:
        """Leases not settled yet; tenants without any are absent."""
        return dict(self._running)

    async def admit(
        self, principal: Principal, request_id: RequestId, demand: Demand
    ) -> Admitted | Rejected:
        self._running[principal.tenant_id] += 1
        return Admitted(_OpenLease(self, principal, request_id, demand.model))

    def release(self, tenant_id: TenantId, record: UsageRecord) -> None:
        """Called once by each lease."""
        self._running[tenant_id] -= 1
        if not self._running[tenant_id]:
            del self._running[tenant_id]
        if self._usage_sink is not None:
            self._usage_sink.record(record)


class _OpenLease:
    def __init__(
        self, admission: OpenAdmission, principal: Principal, request_id: RequestId, model: str
    ) -> None:
        self._admission = admission
        self._principal = principal
        self._request_id = request_id
        self._model = model
        self._settled = False

    async def settle(self, usage: Usage, outcome: Outcome) -> None:
        if self._settled:
            return
        self._settled = True  # before anything else: no await may let a second call in
        who = self._principal
        record = UsageRecord(
            self._request_id, who.tenant_id, who.key_id, self._model, usage, outcome
        )
        self._admission.release(who.tenant_id, record)
