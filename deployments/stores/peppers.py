"""The peppers' rows: made on first use, replaced by rotation, read by whoever hashes a key."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from sqlalchemy import select

from deployments.stores.rows import to_sealed
from deployments.stores.schema import PepperRow
from freehold.secret import Secret
from tenancy.ids import PepperId, new_pepper_id
from tenancy.peppers import pepper_place
from tenancy.sealing import SECRET_BYTES

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from tenancy.clock import Clock
    from tenancy.sealing import MasterKey


async def newest_row(session: AsyncSession) -> PepperRow | None:
    query = select(PepperRow).order_by(PepperRow.generation.desc()).limit(1)
    return (await session.scalars(query)).one_or_none()


async def current(session: AsyncSession, master_key: MasterKey) -> tuple[PepperId, Secret]:
    """The pepper for new digests.

    Raises:
        UnsealFailed: this is not the master key that the database was written with.
        LookupError: there is none; ``ControlPlane.open`` makes the first.
    """
    row = await newest_row(session)
    if row is None:
        message = "no pepper in the database"
        raise LookupError(message)
    pepper_id = PepperId(row.pepper_id)
    return pepper_id, master_key.unseal(to_sealed(row), pepper_place(pepper_id))


async def add_next(session: AsyncSession, master_key: MasterKey, clock: Clock) -> PepperId:
    """Put a new pepper in force for new digests. Older ones stay until no key uses them."""
    newest = await newest_row(session)
    pepper_id = new_pepper_id()
    sealed = master_key.seal(Secret(secrets.token_bytes(SECRET_BYTES)), pepper_place(pepper_id))
    session.add(
        PepperRow(
            pepper_id=pepper_id,
            generation=1 if newest is None else newest.generation + 1,
            master_key_id=sealed.master_key_id,
            box=sealed.box,
            created_at=clock.now(),
        )
    )
    return pepper_id
