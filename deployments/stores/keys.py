"""API keys: issued once in clear, kept as a digest, revoked for good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from deployments.stores import peppers
from deployments.stores.lookup import find_key, find_tenant
from deployments.stores.rows import from_scopes, to_key
from deployments.stores.schema import ApiKeyRow
from freehold.errors import InvalidRequest
from tenancy.api_key import ApiKey, digest, new_api_key, parse_key_id
from tenancy.ids import parse_tenant_id
from tenancy.principal import Scope

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from deployments.stores.database import Database
    from tenancy.clock import Clock
    from tenancy.directory import KeyRecord
    from tenancy.ids import PepperId
    from tenancy.sealing import MasterKey

MAX_LABEL_CHARS = 100
_LABEL = "label"
_SCOPES = "scopes"
_EXPIRES_AT = "expires_at"


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """``key`` exists here and with its holder only; it cannot be read back."""

    record: KeyRecord
    key: ApiKey


class KeyRepository:
    def __init__(self, database: Database, master_key: MasterKey, clock: Clock) -> None:
        self._database = database
        self._master_key = master_key
        self._clock = clock

    async def issue(
        self,
        tenant: str,
        *,
        label: str = "",
        scopes: Collection[Scope] = (Scope.INFERENCE,),
        expires_at: datetime | None = None,
    ) -> IssuedKey:
        """Raises:
        InvalidRequest: no such tenant, no scope, a bad label, or an expiry in the past.
        StoreUnavailable, UnsealFailed
        """
        now = self._clock.now()
        _check_label(label)
        if not scopes:
            raise InvalidRequest(_SCOPES, "must not be empty")
        if expires_at is not None and expires_at <= now:
            raise InvalidRequest(_EXPIRES_AT, "must be in the future")
        tenant_id = parse_tenant_id(tenant)
        key = new_api_key()
        async with self._database.change() as session:
            await find_tenant(session, tenant_id)
            pepper_id, pepper = await peppers.current(session, self._master_key)
            row = ApiKeyRow(
                key_id=key.key_id,
                tenant_id=tenant_id,
                pepper_id=pepper_id,
                digest=digest(key, pepper),
                scopes=from_scopes(scopes),
                label=label,
                created_at=now,
                expires_at=expires_at,
                revoked_at=None,
            )
            session.add(row)
        return IssuedKey(to_key(row), key)

    async def revoke(self, key: str) -> KeyRecord:
        """``key`` is a key id, or a whole key whose id is taken. The first revocation's time stays.

        Raises:
            InvalidRequest: no such key.
            StoreUnavailable
        """
        key_id = parse_key_id(key)
        async with self._database.change() as session:
            row = await find_key(session, key_id)
            row.revoked_at = row.revoked_at or self._clock.now()
            return to_key(row)

    async def list(self, tenant: str | None = None) -> Sequence[KeyRecord]:
        """Of one tenant or of all, oldest first.

        Raises:
            InvalidRequest: no such tenant.
            StoreUnavailable
        """
        query = select(ApiKeyRow).order_by(
            ApiKeyRow.tenant_id, ApiKeyRow.created_at, ApiKeyRow.key_id
        )
        async with self._database.read() as session:
            if tenant is not None:
                row = await find_tenant(session, parse_tenant_id(tenant))
                query = query.where(ApiKeyRow.tenant_id == row.tenant_id)
            return [to_key(row) for row in await session.scalars(query)]

    async def rotate_pepper(self) -> PepperId:
        """New keys are hashed under a new pepper; the keys that exist keep theirs and stay good."""
        async with self._database.change() as session:
            return await peppers.add_next(session, self._master_key, self._clock)


def _check_label(label: str) -> None:
    if len(label) > MAX_LABEL_CHARS:
        raise InvalidRequest(_LABEL, f"must have at most {MAX_LABEL_CHARS} characters")
    if not label.isprintable():
        raise InvalidRequest(_LABEL, "must be printable")
