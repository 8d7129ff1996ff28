from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from deployments.stores import migrations
from deployments.stores.database import Database, StoreUnavailable
from deployments.stores.directory import POLL_INTERVAL_S, SqlTenantDirectory
from deployments.stores.tenants import TenantRepository
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sqlalchemy.ext.asyncio import AsyncSession

    from tenancy.sealing import MasterKey
    from tests.support.tenants import FakeClock


class FlakyDatabase(Database):
    """Refuses to read while ``failure`` is set; counts what was asked."""

    failure: Exception | None = None
    num_reads = 0

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        self.num_reads += 1
        if self.failure is not None:
            raise self.failure
        async with super().read() as session:
            yield session


@pytest.fixture
async def database(url: str) -> AsyncGenerator[FlakyDatabase]:
    database = await FlakyDatabase.open(url)
    assert isinstance(database, FlakyDatabase)
    await migrations.upgrade(database)
    yield database
    await database.close()


@pytest.fixture
async def directory(
    database: FlakyDatabase, clock: FakeClock
) -> AsyncGenerator[SqlTenantDirectory]:
    directory = SqlTenantDirectory(database, clock, poll_interval_s=0.001)
    yield directory
    await directory.close()


@pytest.fixture
def tenants(database: FlakyDatabase, master_key: MasterKey, clock: FakeClock) -> TenantRepository:
    return TenantRepository(database, master_key, clock)


def test_polls_often_enough_for_two_seconds() -> None:
    assert POLL_INTERVAL_S <= 1


async def test_before_the_first_look_it_is_infinitely_old(
    directory: SqlTenantDirectory, clock: FakeClock
) -> None:
    assert directory.snapshot().age_s(clock.monotonic()) == float("inf")


async def test_a_refresh_sees_a_change_and_ages_from_there(
    directory: SqlTenantDirectory, tenants: TenantRepository, clock: FakeClock
) -> None:
    await directory.refresh()
    tenant = await tenants.create("acme")
    assert dict(directory.snapshot().tenants) == {}
    clock.advance(7)
    await directory.refresh()
    snapshot = directory.snapshot()
    assert snapshot.tenants == {"acme": tenant}
    assert set(snapshot.epochs) == {tenant.account_id}
    clock.advance(3)
    assert snapshot.age_s(clock.monotonic()) == 3


async def test_without_a_change_only_the_age_is_new(
    directory: SqlTenantDirectory, tenants: TenantRepository, clock: FakeClock
) -> None:
    await tenants.create("acme")
    await directory.refresh()
    before = directory.snapshot()
    clock.advance(5)
    await directory.refresh()
    after = directory.snapshot()
    assert after.tenants is before.tenants
    assert after.age_s(clock.monotonic()) == 0
    assert before.age_s(clock.monotonic()) == 5


async def test_a_version_that_went_back_counts_as_a_change(
    directory: SqlTenantDirectory, tenants: TenantRepository, database: FlakyDatabase
) -> None:
    """A backup was restored under a running gateway."""
    await tenants.create("acme")
    await directory.refresh()
    async with database.connect_for_schema() as connection:
        for table in ("epochs", "tenants"):
            await connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608 - constants
        await connection.execute(text("UPDATE directory_version SET version = 1"))
    await directory.refresh()
    assert dict(directory.snapshot().tenants) == {}


async def test_a_database_that_fails_leaves_the_snapshot_to_age(
    directory: SqlTenantDirectory,
    tenants: TenantRepository,
    database: FlakyDatabase,
    clock: FakeClock,
) -> None:
    await tenants.create("acme")
    await directory.refresh()
    database.failure = StoreUnavailable("down")
    clock.advance(4)
    with pytest.raises(StoreUnavailable):
        await directory.refresh()
    assert "acme" in directory.snapshot().tenants
    assert directory.snapshot().age_s(clock.monotonic()) == 4


async def test_polling_follows_changes(
    directory: SqlTenantDirectory, tenants: TenantRepository
) -> None:
    directory.start()
    await tenants.create("acme")
    await eventually(lambda: "acme" in directory.snapshot().tenants)


@pytest.mark.parametrize("failure", [StoreUnavailable("down"), RuntimeError("a bug")])
async def test_polling_survives_failures_and_says_so_once(
    directory: SqlTenantDirectory,
    tenants: TenantRepository,
    database: FlakyDatabase,
    failure: Exception,
) -> None:
    database.failure = failure
    with capture_logs() as logs:
        directory.start()
        await eventually(lambda: directory.num_failures >= 3)
    assert [(log["event"], log["error"]) for log in logs] == [
        ("tenant_directory_poll_failed", type(failure).__name__)
    ]
    database.failure = None
    await tenants.create("acme")
    await eventually(lambda: "acme" in directory.snapshot().tenants)
    assert directory.num_failures == 0


async def test_close_ends_the_polling_and_may_be_repeated(
    directory: SqlTenantDirectory, database: FlakyDatabase
) -> None:
    directory.start()
    directory.start()
    await eventually(lambda: database.num_reads > 0)
    await directory.close()
    await directory.close()
    seen = database.num_reads
    await asyncio.sleep(0.02)
    assert database.num_reads == seen
