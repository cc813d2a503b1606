"""The tables `tenants`, `api_keys` and `rate_limit_counters`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, Index, LargeBinary, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Now, OptStr, OptTime, Str, StrList, TenantId


class TenantRow(Base):
    """Has no `tenant_id`: its `id` is the tenant ID."""

    __tablename__ = "tenants"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    slug: Mapped[Str] = mapped_column(unique=True)
    status: Mapped[Str] = mapped_column(server_default="active")
    created_at: Mapped[Now]


class ApiKeyRow(Base):
    """An API key. Only the SHA-256 of its secret is stored."""

    __tablename__ = "api_keys"
    __table_args__ = (UniqueConstraint("tenant_id", "secret_hash"),)

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    name: Mapped[Str] = mapped_column(server_default="")
    secret_hash: Mapped[bytes] = mapped_column(LargeBinary)
    scopes: Mapped[StrList]
    project_id: Mapped[OptStr]
    expires_at: Mapped[OptTime]
    revoked_at: Mapped[OptTime]
    last_used_at: Mapped[OptTime]
    created_at: Mapped[Now] = mapped_column(server_default=text("now()"))


class RateLimitCounterRow(Base):
    """Requests of one caller in one period (`auth/rate_limit_storage.py`). Not a tenant's data:
    `name` is the ID of an API key or a tenant, or the hash of an address.
    """

    __tablename__ = "rate_limit_counters"
    __table_args__ = (Index("rate_limit_counters_expires_at_idx", "expires_at"),)

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    period: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    request_count: Mapped[int]
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
