"""The table of scheduled maintenance tasks."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime
from sqlalchemy.orm import Mapped, mapped_column

from apps.memory_api.core.db import Base, Json, Str, TenantId


class MaintenanceTaskRow(Base):
    """The latest start of one task of a tenant, and where the task continues."""

    __tablename__ = "maintenance_tasks"

    tenant_id: Mapped[TenantId]
    task: Mapped[Str] = mapped_column(primary_key=True)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    run_id: Mapped[UUID | None]
    state: Mapped[Json]
