"""Statements on evaluations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.evaluation.schemas import CriterionScore
from memory_api.evaluation.tables import TraceEvaluationRow
from memory_api.traces.schemas import OutcomeConflict

REPLACE_SCORES = load_statement("evaluation/queries.sql", "replace_scores")


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
    conflict: OutcomeConflict | None,
) -> None:
    """Replaces the scores of a trace (evaluator → scores), and its conflict."""
    scores = [
        {"evaluator": name, "criterion": score.criterion.value, "score": score.score}
        | {"reasons": list(score.reasons), "is_declared": score.declared}
        for name, scores in scores_by_evaluator.items()
        for score in scores
    ]
    await fetch_rows(
        session,
        REPLACE_SCORES,
        {
            "tenant": current_tenant_id(session),
            "trace": trace_id,
            "run": run_id,
            "evaluators": list(scores_by_evaluator),
            "scores": json.dumps(scores, ensure_ascii=False),
            "conflict": conflict.model_dump_json() if conflict else None,
        },
    )
