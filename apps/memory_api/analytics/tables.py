"""The tables behind the SQL page of the console."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, UniqueConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Now, Str, TenantId


class SqlCredentialRow(Base):
    """The read-only login with which the console runs SQL for the tenant. Only the owner role may
    write it.
    """

    __tablename__ = "sql_credentials"

    tenant_id: Mapped[TenantId]
    role_name: Mapped[Str]
    password: Mapped[Str]
    created_at: Mapped[Now]


class SavedStatementRow(Base):
    """A statement that a person saved. `saved_by` is the actor, such as `key:` and an ID."""

    __tablename__ = "saved_statements"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    name: Mapped[Str]
    statement: Mapped[Str]
    saved_by: Mapped[Str]
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
