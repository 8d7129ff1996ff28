"""Run by Alembic: migrates over the connection, and in the transaction, that it was given."""

from __future__ import annotations

from alembic import context

from deployments.stores.schema import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
