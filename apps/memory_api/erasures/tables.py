"""The table of erasures."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Json, Now, OptStr, OptTime, Str, TenantId


class ErasureRow(Base):
    """A request to erase a memory, a trace, a person or the tenant, and its result."""

    __tablename__ = "erasures"
    __table_args__ = (
        CheckConstraint(
            "target_kind in ('memory', 'trace', 'person', 'tenant')", name="target_kind"
        ),
        CheckConstraint("state in ('queued', 'done')", name="state"),
        Index("erasures_created_at_idx", "tenant_id", text("created_at desc"), text("id desc")),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    target_kind: Mapped[Str]
    target_id: Mapped[Str]
    state: Mapped[Str] = mapped_column(server_default="queued")
    reason: Mapped[OptStr]
    actor: Mapped[OptStr]
    run_id: Mapped[UUID | None]
    counts: Mapped[Json]
    affected_bullets: Mapped[list[Any]] = mapped_column(JSONB, server_default=text("'[]'"))
    created_at: Mapped[Now]
    finished_at: Mapped[OptTime]
