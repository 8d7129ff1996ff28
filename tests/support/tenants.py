"""A control plane in memory: real keys, digests, seals and salts, without a database.

plane = MemoryControlPlane()
alice = plane.create_tenant("alice")
key = plane.issue_key(alice.tenant_id)
plane.authenticator().authenticate(key.reveal())
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from freehold.secret import Secret
from tenancy.api_key import digest, new_api_key
from tenancy.authentication import Authenticator
from tenancy.directory import (
    DirectorySnapshot,
    KeyRecord,
    SealedEpoch,
    Tenant,
    TenantStatus,
)
from tenancy.ids import (
    KeyId,
    PepperId,
    TenantId,
    new_account_id,
    new_epoch_id,
    new_pepper_id,
    parse_tenant_id,
)
from tenancy.keyring import Keyring, epoch_place
from tenancy.peppers import Peppers, pepper_place
from tenancy.principal import Scope
from tenancy.sealing import MasterKey

if TYPE_CHECKING:
    from freehold.protocol import AccountId
    from tenancy.api_key import ApiKey


@dataclass
class FakeClock:
    """Both times stand still until moved."""

    wall: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    mono_s: float = 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.mono_s

    def advance(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.mono_s += seconds


class MemoryControlPlane:
    """Is a ``TenantDirectory``; every change makes a new version, confirmed at once."""

    pepper_id: PepperId

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.master_key = MasterKey(Secret(secrets.token_bytes(32)))
        self._snapshot = DirectorySnapshot(version=0, confirmed_s=self.clock.monotonic())
        self.rotate_pepper()

    def snapshot(self) -> DirectorySnapshot:
        return self._snapshot

    def confirm(self) -> None:
        """As a successful poll that found nothing new."""
        self._snapshot = replace(self._snapshot, confirmed_s=self.clock.monotonic())

    def authenticator(self) -> Authenticator:
        return Authenticator(self, Peppers(self, self.master_key), self.clock)

    def keyring(self) -> Keyring:
        return Keyring(self, self.master_key)

    def create_tenant(self, name: str) -> Tenant:
        tenant = Tenant(
            parse_tenant_id(name), new_account_id(), TenantStatus.ACTIVE, self.clock.now()
        )
        self._set_tenant(tenant)
        self.new_epoch(tenant.account_id)
        return tenant

    def suspend(self, tenant_id: TenantId) -> None:
        tenant = self._snapshot.tenants[tenant_id]
        self._set_tenant(replace(tenant, status=TenantStatus.SUSPENDED))

    def new_epoch(self, account_id: AccountId) -> None:
        epoch_id = new_epoch_id()
        secret = Secret(secrets.token_bytes(32))
        sealed = self.master_key.seal(secret, epoch_place(account_id, epoch_id))
        epochs = {**self._snapshot.epochs, account_id: SealedEpoch(epoch_id, sealed)}
        self._publish(replace(self._snapshot, epochs=epochs))

    def rotate_pepper(self) -> PepperId:
        self.pepper_id = new_pepper_id()
        secret = Secret(secrets.token_bytes(32))
        sealed = self.master_key.seal(secret, pepper_place(self.pepper_id))
        peppers = {**self._snapshot.peppers, self.pepper_id: sealed}
        self._publish(replace(self._snapshot, peppers=peppers))
        return self.pepper_id

    def issue_key(
        self,
        tenant_id: TenantId,
        *,
        scopes: frozenset[Scope] = frozenset({Scope.INFERENCE}),
        expires_at: datetime | None = None,
    ) -> ApiKey:
        key = new_api_key()
        pepper = Peppers(self, self.master_key).get(self.pepper_id)
        assert pepper is not None
        self.set_key(
            KeyRecord(
                key_id=key.key_id,
                tenant_id=tenant_id,
                pepper_id=self.pepper_id,
                digest=digest(key, pepper),
                scopes=scopes,
                label="",
                created_at=self.clock.now(),
                expires_at=expires_at,
                revoked_at=None,
            )
        )
        return key

    def revoke_key(self, key_id: KeyId) -> None:
        self.set_key(replace(self._snapshot.keys[key_id], revoked_at=self.clock.now()))

    def set_key(self, record: KeyRecord) -> None:
        keys = {**self._snapshot.keys, record.key_id: record}
        self._publish(replace(self._snapshot, keys=keys))

    def replace_snapshot(self, snapshot: DirectorySnapshot) -> None:
        self._publish(snapshot)

    def _set_tenant(self, tenant: Tenant) -> None:
        tenants = {**self._snapshot.tenants, tenant.tenant_id: tenant}
        self._publish(replace(self._snapshot, tenants=tenants))

    def _publish(self, snapshot: DirectorySnapshot) -> None:
        self._snapshot = replace(
            snapshot, version=self._snapshot.version + 1, confirmed_s=self.clock.monotonic()
        )
