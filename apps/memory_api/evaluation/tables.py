"""What evaluators said of traces."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, Double, ForeignKeyConstraint, Text
from sqlalchemy.orm import Mapped, mapped_column

from apps.memory_api.core.columns import Id, Now, StrList, TenantId
from apps.memory_api.core.db import Base


class EvaluationOfTrace(Base):
    """One criterion of a trace as one evaluator sees it; `score` from 0 to 1. No foreign key to
    runs: a run may be erased and what it found stays.
    """

    __tablename__ = "trace_evaluations"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "trace_id"], ["traces.tenant_id", "traces.id"], ondelete="CASCADE"
        ),
        CheckConstraint("score between 0 and 1", name="score"),
    )

    tenant_id: Mapped[TenantId]
    trace_id: Mapped[Id]
    evaluator: Mapped[str] = mapped_column(Text, primary_key=True)
    criterion: Mapped[str] = mapped_column(Text, primary_key=True)
    score: Mapped[float] = mapped_column(Double)
    reasons: Mapped[StrList]
    run_id: Mapped[UUID | None]
    created_at: Mapped[Now]
