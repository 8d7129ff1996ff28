"""Rows to values. What an older Freehold cannot read in a newer one's row grants nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freehold.protocol import AccountId, EpochId
from tenancy.directory import KeyRecord, SealedEpoch, Tenant, TenantStatus
from tenancy.ids import KeyId, MasterKeyId, PepperId, TenantId
from tenancy.principal import Scope
from tenancy.sealing import SealedSecret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deployments.stores.schema import ApiKeyRow, EpochRow, PepperRow, TenantRow

_SCOPES = {scope.value: scope for scope in Scope}


def to_tenant(row: TenantRow) -> Tenant:
    active = row.status == TenantStatus.ACTIVE.value
    return Tenant(
        tenant_id=TenantId(row.tenant_id),
        account_id=AccountId(row.account_id),
        status=TenantStatus.ACTIVE if active else TenantStatus.SUSPENDED,
        created_at=row.created_at,
    )


def to_key(row: ApiKeyRow) -> KeyRecord:
    return KeyRecord(
        key_id=KeyId(row.key_id),
        tenant_id=TenantId(row.tenant_id),
        pepper_id=PepperId(row.pepper_id),
        digest=row.digest,
        scopes=frozenset(_SCOPES[name] for name in row.scopes.split() if name in _SCOPES),
        label=row.label,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )


def to_epoch(row: EpochRow) -> SealedEpoch:
    return SealedEpoch(EpochId(row.epoch_id), to_sealed(row))


def to_sealed(row: EpochRow | PepperRow) -> SealedSecret:
    return SealedSecret(MasterKeyId(row.master_key_id), row.box)


def from_scopes(scopes: Iterable[Scope]) -> str:
    return " ".join(sorted(scope.value for scope in scopes))
