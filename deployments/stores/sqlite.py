"""What SQLite needs to behave: WAL, real transactions, a file that only its owner reads.

Durability is left at SQLite's full setting: a revocation that was reported must survive a power
cut.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

WRITES = "freehold_writes"
"""Execution option of connections that will write."""
_WAL_ATTEMPTS = 50
_WAL_PAUSE_S = 0.1


def prepare_file(path: Path) -> None:
    """Create folder (700) and file (600) unless they exist, and switch the file to WAL for good.

    Blocking. Safe when several processes start at once. SQLite gives the files beside it (``-wal``,
    ``-shm``) the same mode.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # An existing file is not opened: closing a descriptor of it drops this process's SQLite locks.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    for attempt in range(1, _WAL_ATTEMPTS + 1):
        try:
            with closing(sqlite3.connect(path, timeout=_WAL_PAUSE_S)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            # Two processes that convert at once: SQLite refuses one without waiting.
            if attempt == _WAL_ATTEMPTS:
                raise
            time.sleep(_WAL_PAUSE_S)


def configure(engine: AsyncEngine) -> None:
    """Take transactions over from the driver, which opens none for a SELECT or for DDL."""

    def on_connect(connection: Any, _record: object) -> None:  # the driver's own, untyped
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA secure_delete = ON")  # a destroyed secret is overwritten
        cursor.close()

    def on_begin(connection: Connection) -> None:
        # A writer takes the write lock at once: one that reads first and then writes would fail
        # without waiting if another had written in between.
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine.sync_engine, "connect", on_connect)
    event.listen(engine.sync_engine, "begin", on_begin)
