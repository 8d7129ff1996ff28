"""What ``freehold status`` shows, as one gateway knows it: replicas, pools, accounts, hit rates.

Frozen values from the replicas' last reports; asks nobody, so it answers while replicas do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freehold.protocol import AccountId, ReplicaReport
    from tenancy.directory import Tenant

STATUS_PATH = "/internal/status"
"""Of the gateway; see ``operator_api`` for who may ask."""


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """Blocks of one account in one replica. ``tenant`` is None for an account of no tenant."""

    account_id: str
    tenant: str | None
    active_blocks: int
    cached_blocks: int


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Totals count from the start of the replica's process."""

    replica_id: str
    healthy: bool
    incarnation: str
    attention_backend: str
    dtype: str
    num_blocks: int
    block_size: int
    free_blocks: int
    active_blocks: int
    cached_blocks: int
    num_running: int
    num_waiting: int
    prefill_tokens_per_s: float
    prompt_tokens: int
    cached_tokens: int
    computed_prefill_tokens: int
    output_tokens: int
    num_preemptions: int
    accounts: tuple[AccountStatus, ...]


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """``replicas`` are those that report; fewer than ``num_expected`` while one (re)starts."""

    model: str
    num_expected: int
    hit_rate: float | None
    """Prompt tokens found in a cache, of all; None before the first."""
    replicas: tuple[ReplicaStatus, ...]


def model_status(
    model: str,
    num_expected: int,
    reports: Mapping[str, ReplicaReport],
    tenants: Iterable[Tenant],
) -> ModelStatus:
    """``reports`` by replica id."""
    names = {tenant.account_id: str(tenant.tenant_id) for tenant in tenants}
    prompt = sum(report.prompt_tokens_total for report in reports.values())
    cached = sum(report.cached_tokens_total for report in reports.values())
    replicas = tuple(_replica(id_, report, names) for id_, report in sorted(reports.items()))
    return ModelStatus(model, num_expected, cached / prompt if prompt else None, replicas)


def _replica(
    replica_id: str, report: ReplicaReport, names: Mapping[AccountId, str]
) -> ReplicaStatus:
    return ReplicaStatus(
        replica_id=replica_id,
        healthy=report.healthy,
        incarnation=report.incarnation,
        attention_backend=report.card.attention_backend,
        dtype=report.card.dtype,
        num_blocks=report.card.num_blocks,
        block_size=report.card.block_size,
        free_blocks=report.free_blocks,
        active_blocks=report.active_blocks,
        cached_blocks=report.cached_blocks,
        num_running=report.num_running,
        num_waiting=report.num_waiting,
        prefill_tokens_per_s=report.prefill_tokens_per_s,
        prompt_tokens=report.prompt_tokens_total,
        cached_tokens=report.cached_tokens_total,
        computed_prefill_tokens=report.computed_prefill_tokens_total,
        output_tokens=report.output_tokens_total,
        num_preemptions=report.num_preemptions_total,
        accounts=_accounts(report, names),
    )


def _accounts(report: ReplicaReport, names: Mapping[AccountId, str]) -> tuple[AccountStatus, ...]:
    """The largest first."""
    rows = [
        AccountStatus(account, names.get(account), usage.active_blocks, usage.cached_blocks)
        for account, usage in report.accounts.items()
    ]
    return tuple(sorted(rows, key=lambda row: -(row.active_blocks + row.cached_blocks)))
