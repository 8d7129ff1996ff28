from __future__ import annotations

import asyncio

import pytest

from freehold.protocol import DEVICE, AccountId, RequestId, Usage
from tenancy.admission import Admitted, Demand, Lease, OpenAdmission
from tenancy.ids import KeyId, TenantId
from tenancy.principal import Principal, Scope
from tenancy.usage import Outcome, UsageRecord

DEMAND = Demand(model="m", prompt_tokens=10, max_output_tokens=20)
USAGE = Usage(prompt=10, cached_by_medium={DEVICE: 8}, output=5)


class ListSink:
    def __init__(self) -> None:
        self.records: list[UsageRecord] = []

    def record(self, record: UsageRecord) -> None:
        self.records.append(record)


def principal(name: str) -> Principal:
    return Principal(
        TenantId(name), AccountId(f"tn_{name}"), KeyId("k"), frozenset({Scope.INFERENCE})
    )


async def admitted(admission: OpenAdmission, name: str, request_id: str) -> Lease:
    result = await admission.admit(principal(name), RequestId(request_id), DEMAND)
    assert isinstance(result, Admitted)
    return result.lease


async def test_counts_running_leases_by_tenant() -> None:
    admission = OpenAdmission()
    first = await admitted(admission, "a", "r1")
    await admitted(admission, "a", "r2")
    await admitted(admission, "b", "r3")
    assert admission.running == {"a": 2, "b": 1}
    await first.settle(USAGE, Outcome.COMPLETED)
    assert admission.running == {"a": 1, "b": 1}


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_every_outcome_is_charged_and_releases(outcome: Outcome) -> None:
    sink = ListSink()
    admission = OpenAdmission(sink)
    lease = await admitted(admission, "a", "r1")
    await lease.settle(USAGE, outcome)
    assert admission.running == {}
    assert sink.records == [
        UsageRecord(RequestId("r1"), TenantId("a"), KeyId("k"), "m", USAGE, outcome)
    ]


async def test_a_lease_settles_once_however_often_it_is_told() -> None:
    sink = ListSink()
    admission = OpenAdmission(sink)
    lease = await admitted(admission, "a", "r1")
    await admitted(admission, "a", "r2")
    await asyncio.gather(*(lease.settle(USAGE, Outcome.CANCELLED) for _ in range(5)))
    await lease.settle(Usage(), Outcome.COMPLETED)
    assert admission.running == {"a": 1}
    assert [record.outcome for record in sink.records] == [Outcome.CANCELLED]
