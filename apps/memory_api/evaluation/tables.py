"""Scores of traces."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, Double, ForeignKeyConstraint, Text, false
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Now, StrList, TenantId


class TraceEvaluationRow(Base):
    """The score (0 to 1) of one criterion of a trace by one evaluator. No foreign key to runs: a
    score outlives its run.
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
    declared: Mapped[bool] = mapped_column("is_declared", server_default=false())
    """Whether a check that the client declared decided the score."""
    run_id: Mapped[UUID | None]
    created_at: Mapped[Now]
