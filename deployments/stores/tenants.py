"""Tenants: created with an account and its first cache epoch, suspended, never deleted here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from deployments.stores.epochs import add_epoch
from deployments.stores.lookup import find_tenant
from deployments.stores.rows import to_tenant
from deployments.stores.schema import TenantRow
from freehold.errors import InvalidRequest
from tenancy.directory import Tenant, TenantStatus
from tenancy.ids import new_account_id, parse_tenant_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deployments.stores.database import Database
    from tenancy.clock import Clock
    from tenancy.sealing import MasterKey

_PARAM = "tenant"


class TenantRepository:
    def __init__(self, database: Database, master_key: MasterKey, clock: Clock) -> None:
        self._database = database
        self._master_key = master_key
        self._clock = clock

    async def create(self, name: str) -> Tenant:
        """Raises:
        InvalidRequest: not a valid name, or taken.
        StoreUnavailable
        """
        tenant = Tenant(
            parse_tenant_id(name), new_account_id(), TenantStatus.ACTIVE, self._clock.now()
        )
        async with self._database.change() as session:
            session.add(
                TenantRow(
                    tenant_id=tenant.tenant_id,
                    account_id=tenant.account_id,
                    status=tenant.status.value,
                    created_at=tenant.created_at,
                )
            )
            try:
                await session.flush()
            except IntegrityError:
                raise InvalidRequest(_PARAM, f"{name!r} already exists") from None
            add_epoch(session, tenant.account_id, self._master_key, self._clock)
        return tenant

    async def list(self) -> Sequence[Tenant]:
        """By name."""
        async with self._database.read() as session:
            rows = await session.scalars(select(TenantRow).order_by(TenantRow.tenant_id))
            return [to_tenant(row) for row in rows]

    async def get(self, name: str) -> Tenant:
        """Raises:
        InvalidRequest: no such tenant.
        StoreUnavailable
        """
        async with self._database.read() as session:
            return to_tenant(await find_tenant(session, parse_tenant_id(name)))

    async def set_status(self, name: str, status: TenantStatus) -> Tenant:
        """Suspend or resume; in force on every gateway within its poll.

        Raises:
            InvalidRequest: no such tenant.
            StoreUnavailable
        """
        tenant_id = parse_tenant_id(name)
        async with self._database.change() as session:
            row = await find_tenant(session, tenant_id)
            row.status = status.value
            return to_tenant(row)
