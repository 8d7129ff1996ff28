"""What every gateway knows of the control plane: one consistent, versioned, aging snapshot.

Secrets in it stay sealed; who needs one unseals it with the master key. The port is synchronous
and local: no request ever waits for a database.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from freehold.protocol import AccountId, EpochId
    from tenancy.ids import KeyId, PepperId, TenantId
    from tenancy.principal import Scope
    from tenancy.sealing import SealedSecret


class TenantStatus(StrEnum):
    ACTIVE = "active"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A customer. ``account_id`` is what engines see in place of the name."""

    tenant_id: TenantId
    account_id: AccountId
    status: TenantStatus
    created_at: datetime


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is stored of an API key: enough to check one, not enough to make one."""

    key_id: KeyId
    tenant_id: TenantId
    pepper_id: PepperId
    digest: bytes = field(repr=False)
    scopes: frozenset[Scope]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class SealedEpoch:
    """The current generation of an account's secret."""

    epoch_id: EpochId
    sealed: SealedSecret


@dataclass(frozen=True, slots=True)
class DirectorySnapshot:
    """Everything at one ``version``, known to be true at ``confirmed_s`` (monotonic seconds)."""

    version: int
    confirmed_s: float
    tenants: Mapping[TenantId, Tenant] = field(default_factory=dict["TenantId", "Tenant"])
    keys: Mapping[KeyId, KeyRecord] = field(default_factory=dict["KeyId", "KeyRecord"])
    epochs: Mapping[AccountId, SealedEpoch] = field(
        default_factory=dict["AccountId", "SealedEpoch"]
    )
    peppers: Mapping[PepperId, SealedSecret] = field(
        default_factory=dict["PepperId", "SealedSecret"]
    )

    def age_s(self, now_s: float) -> float:
        return now_s - self.confirmed_s


class TenantDirectory(Protocol):
    def snapshot(self) -> DirectorySnapshot:
        """The newest known state; local memory, never blocks. It may be old: look at its age."""
        ...
