"""Statements on evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from sqlalchemy import delete, func, select, tuple_
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
    session: AsyncSession, trace_id: UUID, run_id: UUID, found: Mapping[str, Sequence[Score]]
) -> None:
    """Write what evaluators say of a trace (evaluator → scores) over what they said before."""
    tenant_id = tenant_of(session)
    told = [(name, score.criterion.value) for name, scores in found.items() for score in scores]
    await session.execute(
        delete(EvaluationOfTrace).where(
            EvaluationOfTrace.tenant_id == tenant_id,
            EvaluationOfTrace.trace_id == trace_id,
            EvaluationOfTrace.evaluator.in_(found),
            tuple_(EvaluationOfTrace.evaluator, EvaluationOfTrace.criterion).not_in(told),
        )
    )
    if not told:
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
        for name, scores in found.items()
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
