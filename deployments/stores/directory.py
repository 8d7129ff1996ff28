"""The directory that gateways read, kept fresh by polling one number.

A change in the database is seen one poll later (0.5 s and the query), so revocations and purges
are in force well within 2 s. While the database does not answer, the last snapshot stays and gets
older; how old is too old is decided by who authenticates (and that fails closed).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import structlog
from sqlalchemy import select

from deployments.stores.rows import to_epoch, to_key, to_sealed, to_tenant
from deployments.stores.schema import (
    ApiKeyRow,
    Base,
    DirectoryVersionRow,
    EpochRow,
    PepperRow,
    TenantRow,
)
from freehold.protocol import AccountId
from tenancy.directory import DirectorySnapshot
from tenancy.ids import PepperId

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sqlalchemy.ext.asyncio import AsyncSession

    from deployments.stores.database import Database
    from tenancy.clock import Clock

POLL_INTERVAL_S = 0.5
ROWS_AT_A_TIME = 100

_Row = TypeVar("_Row", bound=Base)

_log = structlog.get_logger(__name__)


class SqlTenantDirectory:
    """Is a ``TenantDirectory``. ``start`` polls in the running loop until ``close``."""

    def __init__(
        self, database: Database, clock: Clock, *, poll_interval_s: float = POLL_INTERVAL_S
    ) -> None:
        self._database = database
        self._clock = clock
        self._poll_interval_s = poll_interval_s
        self._snapshot = DirectorySnapshot(version=-1, confirmed_s=float("-inf"))
        self._one_at_a_time = asyncio.Lock()  # else an older load could overwrite a newer one
        self._task: asyncio.Task[None] | None = None
        self._num_failures = 0

    def snapshot(self) -> DirectorySnapshot:
        return self._snapshot

    @property
    def num_failures(self) -> int:
        """Polls that failed since the last good one."""
        return self._num_failures

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._poll(), name="tenant-directory")

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])  # unlike awaiting it: our own cancellation gets through

    async def refresh(self) -> None:
        """Look once, now.

        Raises:
            StoreUnavailable: the snapshot is unchanged.
        """
        async with self._one_at_a_time:
            confirmed_s = self._clock.monotonic()  # before the query: age is never understated
            self._snapshot = replace(await self._look(), confirmed_s=confirmed_s)
            self._num_failures = 0

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_interval_s)
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next poll may succeed; meanwhile the snapshot ages and authentication closes
                self._num_failures += 1
                if self._num_failures == 1:
                    _log.warning("tenant_directory_poll_failed", error=type(error).__name__)

    async def _look(self) -> DirectorySnapshot:
        """The snapshot at hand if its version is still the database's, else everything anew.

        Any other version counts, not only a larger one: a restored backup goes back.
        """
        async with self._database.read() as session:
            version = (await session.scalars(select(DirectoryVersionRow.version))).one()
            if version == self._snapshot.version:
                return self._snapshot
            tenants = [to_tenant(row) async for row in _rows(session, TenantRow)]
            keys = [to_key(row) async for row in _rows(session, ApiKeyRow)]
            epochs = {
                AccountId(row.account_id): to_epoch(row) async for row in _rows(session, EpochRow)
            }
            peppers = {
                PepperId(row.pepper_id): to_sealed(row) async for row in _rows(session, PepperRow)
            }
        return DirectorySnapshot(
            version=version,
            confirmed_s=self._snapshot.confirmed_s,
            tenants={tenant.tenant_id: tenant for tenant in tenants},
            keys={key.key_id: key for key in keys},
            epochs=epochs,
            peppers=peppers,
        )


async def _rows(session: AsyncSession, kind: type[_Row]) -> AsyncGenerator[_Row]:
    """All rows, a few at a time: between them the loop goes on serving requests."""
    query = select(kind).execution_options(yield_per=ROWS_AT_A_TIME)
    stream = await session.stream_scalars(query)
    async for rows in stream.partitions():
        for row in rows:
            yield row
