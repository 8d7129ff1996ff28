"""The schema's history. ``upgrade`` brings a database to the newest one, from wherever it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from deployments.stores.database import StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from deployments.stores.database import Database


async def upgrade(database: Database) -> None:
    """All or nothing, in one write transaction: a second process waits and finds nothing to do.

    Raises:
        StoreUnavailable: unreachable, or written by a newer Freehold.
    """
    async with database.connect_for_schema() as connection:
        await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        reason = f"its schema is not one of this version's ({error})"
        raise StoreUnavailable(reason) from error
