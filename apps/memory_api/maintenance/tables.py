"""The tables of scheduled maintenance tasks and of retention."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, DateTime
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Json, Now, Str, TenantId


class MaintenanceTaskRow(Base):
    """The latest start of one task of a tenant, and where the task continues."""

    __tablename__ = "maintenance_tasks"

    tenant_id: Mapped[TenantId]
    task: Mapped[Str] = mapped_column(primary_key=True)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    run_id: Mapped[UUID | None]
    state: Mapped[Json]


class RetentionPolicyRow(Base):
    """How many days the data of a project is stored; "" stands for all projects without a row."""

    __tablename__ = "retention_policies"
    __table_args__ = (
        CheckConstraint(
            "least(event_days, trace_days, retrieval_days, llm_call_days) >= 1", name="days"
        ),
    )

    tenant_id: Mapped[TenantId]
    project_id: Mapped[Str] = mapped_column(primary_key=True)
    event_days: Mapped[int | None]
    trace_days: Mapped[int | None]
    retrieval_days: Mapped[int | None]
    llm_call_days: Mapped[int | None]
    updated_at: Mapped[Now]
