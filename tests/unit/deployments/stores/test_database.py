from __future__ import annotations

import asyncio
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import make_url, select, text

from deployments.stores import migrations
from deployments.stores.database import Database, StoreUnavailable
from deployments.stores.schema import DirectoryVersionRow, TenantRow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.support.tenants import FakeClock


@pytest.fixture
async def database(url: str) -> AsyncGenerator[Database]:
    database = await Database.open(url)
    await migrations.upgrade(database)
    yield database
    await database.close()


def path_of(url: str) -> Path:
    return Path(make_url(url).database or "")


async def version(database: Database) -> int:
    async with database.read() as session:
        return (await session.scalars(select(DirectoryVersionRow.version))).one()


def row(name: str, clock: FakeClock) -> TenantRow:
    return TenantRow(
        tenant_id=name, account_id=f"tn_{name}", status="active", created_at=clock.now()
    )


async def test_files_are_their_owners_alone_and_in_wal_mode(database: Database, url: str) -> None:
    path = path_of(url)
    assert await version(database) == 1  # the connection stays in the pool: -wal and -shm exist
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["control.db", "control.db-shm", "control.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_change_raises_the_version_by_one(database: Database, clock: FakeClock) -> None:
    async with database.change() as session:
        session.add(row("a", clock))
    assert await version(database) == 2


async def test_a_change_that_fails_leaves_nothing_behind(
    database: Database, clock: FakeClock
) -> None:
    async def half() -> None:
        async with database.change() as session:
            session.add(row("a", clock))
            await session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await half()
    assert await version(database) == 1
    async with database.read() as session:
        assert (await session.scalars(select(TenantRow))).all() == []


async def test_a_reader_sees_one_moment(database: Database, clock: FakeClock) -> None:
    async with database.read() as session:
        before = (await session.scalars(select(DirectoryVersionRow.version))).one()
        async with database.change() as writer:
            writer.add(row("a", clock))
        assert (await session.scalars(select(TenantRow))).all() == []
        again = (await session.scalars(select(DirectoryVersionRow.version))).one()
    assert before == again == 1


async def test_changes_wait_for_each_other(database: Database, clock: FakeClock) -> None:
    async def add(name: str) -> None:
        async with database.change() as session:
            session.add(row(name, clock))

    await asyncio.gather(*(add(f"t{i}") for i in range(8)))
    assert await version(database) == 9


async def test_a_lock_that_is_not_given_back_is_an_error_not_a_hang(
    database: Database, url: str
) -> None:
    with closing(sqlite3.connect(path_of(url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        impatient = await Database.open(url, timeout_s=0.1)
        with pytest.raises(StoreUnavailable, match="database is locked"):
            async with impatient.change():
                pytest.fail("got the lock twice")
        await impatient.close()
        assert await version(database) == 1
        other.execute("ROLLBACK")
    async with database.change():
        pass
    assert await version(database) == 2


async def test_an_error_tells_neither_statement_nor_values(
    database: Database, clock: FakeClock
) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        async with database.read() as session:
            await session.execute(text("SELECT :v FROM nowhere"), {"v": "a-stored-value"})
    assert str(caught.value).endswith("OperationalError: no such table: nowhere")
    assert "a-stored-value" not in str(caught.value) + str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://user:pa55word@host/db", "postgresql is not supported yet"),
        ("sqlite://", "must name a file"),
        ("sqlite:///:memory:", "must name a file"),
        ("pa55word", "is not a URL"),
    ],
)
async def test_other_urls_are_refused_without_repeating_them(url: str, reason: str) -> None:
    with pytest.raises(StoreUnavailable, match=reason) as caught:
        await Database.open(url)
    assert "pa55word" not in str(caught.value)


async def test_a_folder_that_cannot_be_made_is_named_as_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="Error"):
        await Database.open(f"sqlite:///{tmp_path}/file/control.db")


async def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "control.db").write_text("not a database, " * 100)
    with pytest.raises(StoreUnavailable, match="not a database"):
        await Database.open(f"sqlite:///{tmp_path}/control.db")
