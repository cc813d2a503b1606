"""Statements on evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.evaluation.schemas import Score
from apps.memory_api.evaluation.tables import EvaluationOfTrace


async def list_evaluations(session: AsyncSession, trace_id: UUID) -> Sequence[EvaluationOfTrace]:
    """By evaluator and criterion; at most five an evaluator."""
    rows = await session.scalars(
        select(EvaluationOfTrace)
        .where(
            EvaluationOfTrace.tenant_id == tenant_of(session),
            EvaluationOfTrace.trace_id == trace_id,
        )
        .order_by(EvaluationOfTrace.evaluator, EvaluationOfTrace.criterion)
    )
    return rows.all()


async def keep_scores(
    session: AsyncSession, trace_id: UUID, evaluator: str, run_id: UUID, scores: Sequence[Score]
) -> None:
    """Write an evaluator's scores of a trace over those of an earlier time."""
    tenant_id = tenant_of(session)
    await session.execute(
        delete(EvaluationOfTrace).where(
            EvaluationOfTrace.tenant_id == tenant_id,
            EvaluationOfTrace.trace_id == trace_id,
            EvaluationOfTrace.evaluator == evaluator,
            EvaluationOfTrace.criterion.not_in([score.criterion.value for score in scores]),
        )
    )
    if not scores:
        return
    rows = [
        {
            "tenant_id": tenant_id,
            "trace_id": trace_id,
            "evaluator": evaluator,
            "criterion": score.criterion.value,
            "score": score.score,
            "reasons": list(score.reasons),
            "run_id": run_id,
        }
        for score in scores
    ]
    new = insert(EvaluationOfTrace).values(rows)
    await session.execute(
        new.on_conflict_do_update(
            constraint="trace_evaluations_pkey",
            set_={
                "score": new.excluded.score,
                "reasons": new.excluded.reasons,
                "run_id": new.excluded.run_id,
                "created_at": func.now(),
            },
        )
    )
