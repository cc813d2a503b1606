"""Statements on evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import current_tenant_id
from apps.memory_api.evaluation.schemas import CriterionScore
from apps.memory_api.evaluation.tables import TraceEvaluationRow


async def list_evaluations(session: AsyncSession, trace_id: UUID) -> Sequence[TraceEvaluationRow]:
    """Scores by evaluator and criterion; at most 5 per evaluator."""
    rows = await session.scalars(
        select(TraceEvaluationRow)
        .where(
            TraceEvaluationRow.tenant_id == current_tenant_id(session),
            TraceEvaluationRow.trace_id == trace_id,
        )
        .order_by(TraceEvaluationRow.evaluator, TraceEvaluationRow.criterion)
    )
    return rows.all()


async def replace_scores(
    session: AsyncSession,
    trace_id: UUID,
    run_id: UUID,
    scores_by_evaluator: Mapping[str, Sequence[CriterionScore]],
) -> None:
    """Replaces the scores of a trace (evaluator → scores)."""
    tenant_id = current_tenant_id(session)
    current_keys = [
        (name, score.criterion.value)
        for name, scores in scores_by_evaluator.items()
        for score in scores
    ]
    await session.execute(
        delete(TraceEvaluationRow).where(
            TraceEvaluationRow.tenant_id == tenant_id,
            TraceEvaluationRow.trace_id == trace_id,
            TraceEvaluationRow.evaluator.in_(scores_by_evaluator),
            tuple_(TraceEvaluationRow.evaluator, TraceEvaluationRow.criterion).not_in(current_keys),
        )
    )
    if not current_keys:
        return
    rows = [
        {
            "tenant_id": tenant_id,
            "trace_id": trace_id,
            "evaluator": name,
            "criterion": score.criterion.value,
            "score": score.score,
            "reasons": list(score.reasons),
            "run_id": run_id,
        }
        for name, scores in scores_by_evaluator.items()
        for score in scores
    ]
    statement = insert(TraceEvaluationRow).values(rows)
    await session.execute(
        statement.on_conflict_do_update(
            constraint="trace_evaluations_pkey",
            set_={
                "score": statement.excluded.score,
                "reasons": statement.excluded.reasons,
                "run_id": statement.excluded.run_id,
                "created_at": func.now(),
            },
        )
    )
