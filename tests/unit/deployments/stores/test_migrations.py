from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from deployments.stores import migrations
from deployments.stores.database import Database, StoreUnavailable
from deployments.stores.schema import Base

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sqlalchemy import Connection


@pytest.fixture
async def database(url: str) -> AsyncGenerator[Database]:
    database = await Database.open(url)
    yield database
    await database.close()


def tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def differences(connection: Connection) -> list[object]:
    return list(compare_metadata(MigrationContext.configure(connection), Base.metadata))


async def test_makes_every_table_from_nothing(database: Database) -> None:
    async with database.connect_for_schema() as connection:
        assert await connection.run_sync(tables) == set()
    await migrations.upgrade(database)
    async with database.connect_for_schema() as connection:
        assert await connection.run_sync(tables) == {*Base.metadata.tables, "alembic_version"}


async def test_makes_what_the_code_expects(database: Database) -> None:
    await migrations.upgrade(database)
    async with database.connect_for_schema() as connection:
        assert await connection.run_sync(differences) == []


async def test_a_second_time_changes_nothing(database: Database) -> None:
    await migrations.upgrade(database)
    async with database.change():
        pass
    await migrations.upgrade(database)
    async with database.read() as session:
        assert (await session.execute(text("SELECT * FROM directory_version"))).all() == [(1, 2)]


async def test_a_migration_that_fails_leaves_nothing_behind(database: Database) -> None:
    async with database.connect_for_schema() as connection:
        await connection.execute(text("CREATE TABLE api_keys (x INTEGER)"))  # made last: in the way
    with pytest.raises(StoreUnavailable, match="already exists"):
        await migrations.upgrade(database)
    async with database.connect_for_schema() as connection:
        assert await connection.run_sync(tables) == {"api_keys"}


async def test_a_newer_schema_is_refused(database: Database) -> None:
    await migrations.upgrade(database)
    async with database.connect_for_schema() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreUnavailable, match="schema"):
        await migrations.upgrade(database)
