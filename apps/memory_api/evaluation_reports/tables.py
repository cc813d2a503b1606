"""The table of published reports."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Json, Now, OptStr, Str, TenantId


class EvaluationReportRow(Base):
    """A report of `hansei eval`. `evaluation_id` is the ID of its plan, `created_at` the time at
    which the plan was written, and `summary` is what lists show of `report`.
    """

    __tablename__ = "evaluation_reports"
    __table_args__ = (
        UniqueConstraint("tenant_id", "project_id", "evaluation_id"),
        Index(
            "evaluation_reports_created_at_idx",
            "tenant_id",
            "project_id",
            text("created_at desc"),
            text("id desc"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    project_id: Mapped[Str]
    evaluation_id: Mapped[Str]
    playbook: Mapped[OptStr]
    summary: Mapped[Json]
    report: Mapped[Json]
    actor: Mapped[Str]
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    published_at: Mapped[Now]
