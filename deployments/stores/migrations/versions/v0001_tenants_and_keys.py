"""Tenants, epochs, peppers and API keys, and the version that gateways poll."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    version = op.create_table(
        "directory_version",
        sa.Column("singleton", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("singleton", name="pk_directory_version"),
    )
    op.bulk_insert(version, [{"singleton": 1, "version": 1}])
    op.create_table(
        "tenants",
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name="pk_tenants"),
        sa.UniqueConstraint("account_id", name="uq_tenants_account_id"),
    )
    op.create_table(
        "epochs",
        sa.Column("epoch_id", sa.String(32), nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("master_key_id", sa.String(32), nullable=False),
        sa.Column("box", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("epoch_id", name="pk_epochs"),
        sa.UniqueConstraint("account_id", name="uq_epochs_account_id"),
    )
    op.create_table(
        "peppers",
        sa.Column("pepper_id", sa.String(32), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("master_key_id", sa.String(32), nullable=False),
        sa.Column("box", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("pepper_id", name="pk_peppers"),
        sa.UniqueConstraint("generation", name="uq_peppers_generation"),
    )
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("pepper_id", sa.String(32), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", sa.String(255), nullable=False),
        sa.Column("label", sa.String(100), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=True),
        sa.Column("revoked_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("key_id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name="fk_api_keys_tenant_id"),
        sa.ForeignKeyConstraint(["pepper_id"], ["peppers.pepper_id"], name="fk_api_keys_pepper_id"),
    )
    op.create_index("ix_api_keys_tenant_id", "api_keys", ["tenant_id"])


def downgrade() -> None:
    for table in ("api_keys", "peppers", "epochs", "tenants", "directory_version"):
        op.drop_table(table)
