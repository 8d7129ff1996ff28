"""Everything that hangs on one database and one master key, opened and closed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from deployments.stores import migrations, peppers
from deployments.stores.database import Database
from deployments.stores.directory import POLL_INTERVAL_S, SqlTenantDirectory
from deployments.stores.epochs import EpochRepository
from deployments.stores.keys import KeyRepository
from deployments.stores.tenants import TenantRepository
from tenancy.authentication import Authenticator
from tenancy.clock import SystemClock
from tenancy.keyring import Keyring
from tenancy.peppers import Peppers

if TYPE_CHECKING:
    from types import TracebackType

    from tenancy.clock import Clock
    from tenancy.sealing import MasterKey


class ControlPlane:
    """``tenants``, ``keys`` and ``epochs`` write the database; ``directory``, ``authenticator``
    and ``keyring`` answer from its local snapshot.

        async with await ControlPlane.open(url, master_key) as plane:
            await plane.tenants.create("acme")
    """

    def __init__(
        self, database: Database, master_key: MasterKey, clock: Clock, poll_interval_s: float
    ) -> None:
        self._database = database
        self._master_key = master_key
        self._clock = clock
        self.tenants = TenantRepository(database, master_key, clock)
        self.keys = KeyRepository(database, master_key, clock)
        self.epochs = EpochRepository(database, master_key, clock)
        self.directory = SqlTenantDirectory(database, clock, poll_interval_s=poll_interval_s)
        self.keyring = Keyring(self.directory, master_key)
        self.authenticator = Authenticator(
            self.directory, Peppers(self.directory, master_key), clock
        )

    @classmethod
    async def open(
        cls,
        url: str,
        master_key: MasterKey,
        *,
        clock: Clock | None = None,
        follow: bool = True,
        poll_interval_s: float = POLL_INTERVAL_S,
    ) -> Self:
        """Bring the database up to date, check the master key against it, load the directory.

        ``follow`` keeps the directory fresh until ``close``. Several processes may open at once.

        Raises:
            StoreUnavailable: unreachable, or its schema is a newer Freehold's.
            UnsealFailed: it was written with another master key.
        """
        database = await Database.open(url)
        plane = cls(database, master_key, clock or SystemClock(), poll_interval_s)
        try:
            await migrations.upgrade(database)
            await plane._prove_master_key()
            await plane.directory.refresh()
        except BaseException:
            await plane.close()
            raise
        if follow:
            plane.directory.start()
        return plane

    async def close(self) -> None:
        await self.directory.close()
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _prove_master_key(self) -> None:
        """Open the current pepper with it; an empty database gets its first one."""
        async with self._database.read() as session:
            is_new = await peppers.newest_row(session) is None
        if is_new:
            async with self._database.change() as session:
                if await peppers.newest_row(session) is None:  # another process may be first
                    await peppers.add_next(session, self._master_key, self._clock)
        async with self._database.read() as session:
            await peppers.current(session, self._master_key)
