"""The tables, for every SQL dialect alike. What they mean is the repositories' business.

No column holds a secret in clear: digests of API keys, and boxes sealed by the master key. The
migrations make these tables; a test holds both to be the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, DateTime, ForeignKey, LargeBinary, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

if TYPE_CHECKING:
    from sqlalchemy import Dialect

NAMING = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes in, UTC out; SQLite itself keeps no time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            message = "a datetime without a time zone cannot be stored"
            raise ValueError(message)
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {datetime: UtcDateTime(), bytes: LargeBinary()}  # noqa: RUF012 - the ORM reads it as a plain class attribute


class DirectoryVersionRow(Base):
    """One row; counts committed changes of everything that gateways read."""

    __tablename__ = "directory_version"

    singleton: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int] = mapped_column(BigInteger())


class TenantRow(Base):
    __tablename__ = "tenants"

    tenant_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    account_id: Mapped[str] = mapped_column(String(64), unique=True)
    status: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime]


class EpochRow(Base):
    """The current epoch of an account. An ended one's row is deleted: its secret is destroyed."""

    __tablename__ = "epochs"

    epoch_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    account_id: Mapped[str] = mapped_column(String(64), unique=True)
    master_key_id: Mapped[str] = mapped_column(String(32))
    box: Mapped[bytes]
    created_at: Mapped[datetime]


class PepperRow(Base):
    """``generation`` counts rotations; the largest one hashes new keys."""

    __tablename__ = "peppers"

    pepper_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    generation: Mapped[int] = mapped_column(unique=True)
    master_key_id: Mapped[str] = mapped_column(String(32))
    box: Mapped[bytes]
    created_at: Mapped[datetime]


class ApiKeyRow(Base):
    """``scopes`` are separated by spaces. Rows are revoked, never deleted: audits name them."""

    __tablename__ = "api_keys"

    key_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.tenant_id"), index=True)
    pepper_id: Mapped[str] = mapped_column(ForeignKey("peppers.pepper_id"))
    digest: Mapped[bytes]
    scopes: Mapped[str] = mapped_column(String(255))
    label: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
