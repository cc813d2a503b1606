"""The tables `tenants` and `api_keys`."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import LargeBinary, UniqueConstraint, text
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
