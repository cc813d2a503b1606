"""The table of console sessions."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime, LargeBinary, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Now, TenantId


class ConsoleSessionRow(Base):
    """A login to the console. Only the SHA-256 of the token in the cookie is stored."""

    __tablename__ = "console_sessions"
    __table_args__ = (UniqueConstraint("tenant_id", "secret_hash"),)

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    key_id: Mapped[UUID]
    secret_hash: Mapped[bytes] = mapped_column(LargeBinary)
    last_used_at: Mapped[Now]
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_at: Mapped[Now]
