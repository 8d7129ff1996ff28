from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from deployments.serving.operator_api import operator_router
from deployments.serving.status import STATUS_PATH, ModelStatus, model_status
from freehold.protocol import (
    AccountId,
    AccountUsage,
    Incarnation,
    ModelCard,
    ReplicaReport,
)
from freehold.secret import Secret
from tenancy.directory import Tenant, TenantStatus
from tenancy.ids import TenantId

if TYPE_CHECKING:
    from collections.abc import Mapping

ACME = Tenant(
    TenantId("acme"), AccountId("tn_1"), TenantStatus.ACTIVE, datetime(2026, 1, 1, tzinfo=UTC)
)
CARD = ModelCard("m", "fp", "llama", "float32", 16, 100, 1024, 320, (2,), "cpu")


def report(
    *,
    prompt: int = 0,
    cached: int = 0,
    accounts: Mapping[AccountId, AccountUsage] | None = None,
) -> ReplicaReport:
    return ReplicaReport(
        incarnation=Incarnation("i"),
        card=CARD,
        free_blocks=70,
        active_blocks=10,
        cached_blocks=20,
        num_running=1,
        num_waiting=2,
        queued_prefill_tokens=0,
        prefill_tokens_per_s=0.0,
        decode_step_s=0.0,
        prompt_tokens_total=prompt,
        cached_tokens_total=cached,
        computed_prefill_tokens_total=prompt - cached,
        output_tokens_total=3,
        num_preemptions_total=0,
        num_finished_total=0,
        num_aborted_total=0,
        accounts=accounts or {},
        healthy=True,
    )


def test_the_hit_rate_counts_tokens_of_all_replicas() -> None:
    reports = {"a": report(prompt=300, cached=300), "b": report(prompt=100)}

    assert model_status("m", 2, reports, ()).hit_rate == 0.75


def test_before_the_first_prompt_there_is_no_hit_rate() -> None:
    assert model_status("m", 2, {"a": report()}, ()).hit_rate is None


def test_a_missing_replica_shows_as_fewer_than_expected() -> None:
    status = model_status("m", 2, {"a": report()}, ())

    assert (status.num_expected, len(status.replicas)) == (2, 1)


def test_accounts_carry_their_tenants_name_the_largest_first() -> None:
    usage = {AccountId("pb_1"): AccountUsage(1, 0), ACME.account_id: AccountUsage(4, 5)}
    status = model_status("m", 1, {"a": report(accounts=usage)}, (ACME,))

    [replica] = status.replicas
    assert [(a.tenant, a.active_blocks, a.cached_blocks) for a in replica.accounts] == [
        ("acme", 4, 5),
        (None, 1, 0),
    ]


@pytest.fixture
def client() -> TestClient:
    from fastapi import FastAPI

    def status() -> list[ModelStatus]:
        return [model_status("m", 1, {"a": report()}, ())]

    app = FastAPI()
    app.include_router(operator_router(Secret(b"t0ken"), status))
    return TestClient(app)


def test_the_operator_reads_the_status(client: TestClient) -> None:
    answer = client.get(STATUS_PATH, headers={"authorization": "Bearer t0ken"})

    assert answer.status_code == 200
    assert answer.json()["models"][0]["replicas"][0]["cached_blocks"] == 20


@pytest.mark.parametrize(
    "authorization", ["", "Bearer ", "t0ken", "Bearer t0ke", "Bearer t0ken ", "bearer t0ken", "ü"]
)
def test_nobody_else_learns_that_it_exists(client: TestClient, authorization: str) -> None:
    headers = {b"authorization": authorization.encode()}
    unknown = client.get("/internal/nothing", headers=headers)
    refused = client.get(STATUS_PATH, headers=headers)

    assert refused.status_code == unknown.status_code == 404
    assert refused.json() == unknown.json()


def test_other_methods_do_not_give_it_away(client: TestClient) -> None:
    assert client.post(STATUS_PATH).status_code == 404
