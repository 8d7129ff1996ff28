"""Finding the row that a caller named, or saying by its name that it is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deployments.stores.schema import ApiKeyRow, TenantRow
from freehold.errors import InvalidRequest

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from tenancy.ids import KeyId, TenantId

_TENANT = "tenant"
_KEY_ID = "key_id"


async def find_tenant(session: AsyncSession, tenant_id: TenantId) -> TenantRow:
    """Raises ``InvalidRequest`` when there is none."""
    row = await session.get(TenantRow, tenant_id)
    if row is None:
        raise InvalidRequest(_TENANT, f"{tenant_id!r} does not exist")
    return row


async def find_key(session: AsyncSession, key_id: KeyId) -> ApiKeyRow:
    """Raises ``InvalidRequest`` when there is none."""
    row = await session.get(ApiKeyRow, key_id)
    if row is None:
        raise InvalidRequest(_KEY_ID, f"{key_id!r} does not exist")
    return row
