"""One database, three kinds of transaction: read, write, and change (a write that gateways see).

Wraps the driver's errors once and bounds every wait. Statements and parameters stay out of errors.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import make_url, update
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from deployments.stores import sqlite
from deployments.stores.schema import DirectoryVersionRow
from freehold.errors import FreeholdError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

TRANSACTION_TIMEOUT_S = 10.0


class StoreUnavailable(FreeholdError):
    """The database cannot be reached or used; ``reason`` holds no statement and no value."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the control plane's database is not available: {self.reason}"


class Database:
    """Owns the connections. One transaction per ``async with``: all of it happens, or nothing."""

    def __init__(self, engine: AsyncEngine, timeout_s: float) -> None:
        self._reader = engine
        self._writer = engine.execution_options(**{sqlite.WRITES: True})
        self._timeout_s = timeout_s

    @classmethod
    async def open(cls, url: str, *, timeout_s: float = TRANSACTION_TIMEOUT_S) -> Database:
        """Connect to ``url`` (``sqlite:///folder/file.db``); the tables are the migrations' job.

        Raises:
            StoreUnavailable: another kind of database, or a file that cannot be made.
        """
        parsed = _parse(url)
        path = Path(parsed.database or "")
        try:
            await asyncio.to_thread(sqlite.prepare_file, path)
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(_describe(error)) from error
        engine = create_async_engine(
            parsed,
            hide_parameters=True,  # else an error's text repeats digests and sealed boxes
            # SQLite gives up on a lock first: its thread cannot be interrupted while it waits.
            connect_args={"timeout": timeout_s / 2},
        )
        sqlite.configure(engine)
        return cls(engine, timeout_s)

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        """One consistent view of the database."""
        async with (
            self._bounded(),
            AsyncSession(self._reader, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    @asynccontextmanager
    async def change(self) -> AsyncGenerator[AsyncSession]:
        """Write what gateways read: the directory's version goes up with it.

        It goes up first, so that its row lock puts changes into the order of their versions.
        """
        async with (
            self._bounded(),
            AsyncSession(self._writer, expire_on_commit=False) as session,
            session.begin(),
        ):
            await session.execute(
                update(DirectoryVersionRow).values(version=DirectoryVersionRow.version + 1)
            )
            yield session

    @asynccontextmanager
    async def connect_for_schema(self) -> AsyncGenerator[AsyncConnection]:
        """A bare connection in a write transaction, for the migrations."""
        async with self._bounded(), self._writer.begin() as connection:
            yield connection

    async def close(self) -> None:
        await self._reader.dispose()

    @asynccontextmanager
    async def _bounded(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError:
            reason = f"no answer within {self._timeout_s:g} s"
            raise StoreUnavailable(reason) from None
        except (SQLAlchemyError, OSError) as error:
            raise StoreUnavailable(_describe(error)) from error


def _parse(url: str) -> URL:
    """An error does not repeat the URL: it may hold a password."""
    problem = None
    try:
        parsed = make_url(url)
    except ArgumentError:
        problem = "database_url is not a URL"
    else:
        if parsed.get_backend_name() != "sqlite":
            problem = f"{parsed.get_backend_name()} is not supported yet, use sqlite"
        elif parsed.database in {None, "", ":memory:"}:
            problem = "database_url must name a file: several processes share it"
        else:
            return parsed.set(drivername="sqlite+aiosqlite")
    raise StoreUnavailable(problem)


def _describe(error: Exception) -> str:
    """The driver's own words where there are any, without the statement."""
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: {cause}"
