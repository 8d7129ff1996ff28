"""Cache epochs: one sealed secret an account. A new epoch is a purge: nothing old is found again.

The row of the epoch that ends is deleted in the same transaction; with its secret goes the only
way to the keys of everything that was cached under it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from sqlalchemy import delete

from deployments.stores.lookup import find_tenant
from deployments.stores.rows import to_tenant
from deployments.stores.schema import EpochRow
from freehold.secret import Secret
from tenancy.ids import new_epoch_id, parse_tenant_id
from tenancy.keyring import epoch_place
from tenancy.sealing import SECRET_BYTES

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from deployments.stores.database import Database
    from freehold.protocol import AccountId, EpochId
    from tenancy.clock import Clock
    from tenancy.sealing import MasterKey


class EpochRepository:
    def __init__(self, database: Database, master_key: MasterKey, clock: Clock) -> None:
        self._database = database
        self._master_key = master_key
        self._clock = clock

    async def purge(self, tenant: str) -> EpochId:
        """Begin a new epoch for the tenant's account; gateways follow within their poll.

        Raises:
            InvalidRequest: no such tenant.
            StoreUnavailable
        """
        tenant_id = parse_tenant_id(tenant)
        async with self._database.change() as session:
            account_id = to_tenant(await find_tenant(session, tenant_id)).account_id
            await session.execute(delete(EpochRow).where(EpochRow.account_id == account_id))
            return add_epoch(session, account_id, self._master_key, self._clock)


def add_epoch(
    session: AsyncSession, account_id: AccountId, master_key: MasterKey, clock: Clock
) -> EpochId:
    """Add the account's only epoch to the transaction at hand."""
    epoch_id = new_epoch_id()
    secret = Secret(secrets.token_bytes(SECRET_BYTES))
    sealed = master_key.seal(secret, epoch_place(account_id, epoch_id))
    session.add(
        EpochRow(
            epoch_id=epoch_id,
            account_id=account_id,
            master_key_id=sealed.master_key_id,
            box=sealed.box,
            created_at=clock.now(),
        )
    )
    return epoch_id
