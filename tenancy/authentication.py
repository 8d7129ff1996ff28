"""Is this key good, and whose is it? Decided from local memory; every doubt means no.

Why a key is refused is told only to who holds it: without the right secret a revoked key, an
expired one and one that never was look the same and cost the same.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freehold.secret import Secret
from tenancy.api_key import digest, parse_api_key
from tenancy.clock import SystemClock
from tenancy.directory import TenantStatus
from tenancy.principal import Principal
from tenancy.sealing import UnsealFailed

if TYPE_CHECKING:
    from tenancy.api_key import ApiKey
    from tenancy.clock import Clock
    from tenancy.directory import DirectorySnapshot, KeyRecord, TenantDirectory
    from tenancy.ids import KeyId
    from tenancy.peppers import Peppers

MAX_SNAPSHOT_AGE_S = 10.0


class AuthFailure(StrEnum):
    """``UNAVAILABLE`` is our fault (try again later), the rest are the caller's."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    REVOKED = "revoked"
    SUSPENDED = "suspended"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Authenticated:
    principal: Principal


@dataclass(frozen=True, slots=True)
class AuthenticationFailed:
    """``key_id`` is for the audit log: public, and known only for a well-formed key."""

    reason: AuthFailure
    key_id: KeyId | None = None


class Authenticator:
    """Fails closed: a snapshot older than ``max_snapshot_age_s`` authenticates nobody.

    (A key revoked meanwhile would still be good in it.)
    """

    def __init__(
        self,
        directory: TenantDirectory,
        peppers: Peppers,
        clock: Clock | None = None,
        *,
        max_snapshot_age_s: float = MAX_SNAPSHOT_AGE_S,
    ) -> None:
        self._directory = directory
        self._peppers = peppers
        self._clock = clock or SystemClock()
        self._max_snapshot_age_s = max_snapshot_age_s
        self._decoy_pepper = Secret(secrets.token_bytes(32))
        self._decoy_digest = secrets.token_bytes(32)

    def authenticate(self, presented: str | None) -> Authenticated | AuthenticationFailed:
        """``presented`` is the bare key, without ``Bearer``."""
        if not presented:
            return AuthenticationFailed(AuthFailure.MISSING)
        key = parse_api_key(presented)
        if key is None:
            return AuthenticationFailed(AuthFailure.MALFORMED)

        snapshot = self._directory.snapshot()
        if snapshot.age_s(self._clock.monotonic()) > self._max_snapshot_age_s:
            return AuthenticationFailed(AuthFailure.UNAVAILABLE, key.key_id)
        try:
            record = self._find(snapshot, key)
        except UnsealFailed:
            return AuthenticationFailed(AuthFailure.UNAVAILABLE, key.key_id)
        if record is None:
            return AuthenticationFailed(AuthFailure.UNKNOWN, key.key_id)
        return self._admit(snapshot, record)

    def _find(self, snapshot: DirectorySnapshot, key: ApiKey) -> KeyRecord | None:
        """The record whose secret this is. One digest and one comparison, whatever is known."""
        record = snapshot.keys.get(key.key_id)
        pepper = None if record is None else self._peppers.get(record.pepper_id)
        expected = self._decoy_digest if record is None else record.digest
        actual = digest(key, pepper or self._decoy_pepper)
        return record if hmac.compare_digest(actual, expected) else None

    def _admit(
        self, snapshot: DirectorySnapshot, record: KeyRecord
    ) -> Authenticated | AuthenticationFailed:
        """The secret is right; may it still be used?"""
        if record.revoked_at is not None:
            return AuthenticationFailed(AuthFailure.REVOKED, record.key_id)
        if record.expires_at is not None and self._clock.now() >= record.expires_at:
            return AuthenticationFailed(AuthFailure.EXPIRED, record.key_id)
        tenant = snapshot.tenants.get(record.tenant_id)
        if tenant is None or tenant.status is not TenantStatus.ACTIVE:
            return AuthenticationFailed(AuthFailure.SUSPENDED, record.key_id)
        return Authenticated(
            Principal(tenant.tenant_id, tenant.account_id, record.key_id, record.scopes)
        )
