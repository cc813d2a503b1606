"""The table `audit_log`."""

from __future__ import annotations

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped

from memory_api.core.db import Base, Id, Json, Now, Str, TenantId


class AuditEventRow(Base):
    """One administrative act. The service adds rows and can neither change nor delete them."""

    __tablename__ = "audit_log"
    __table_args__ = (
        Index("audit_log_created_at_idx", "tenant_id", text("created_at desc"), text("id desc")),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    action: Mapped[Str]
    target: Mapped[Str]
    actor: Mapped[Str]
    details: Mapped[Json]
    created_at: Mapped[Now]
