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
from memory_api.traces.schemas import OutcomeConflict, OutcomeType
from memory_api.traces.tables import TraceRow

REPLACE_SCORES = load_statement("evaluation/queries.sql", "replace_scores")
COUNT_SUCCESSES = load_statement("evaluation/queries.sql", "count_successes")
RECORD_CALL_SEQUENCE = load_statement("evaluation/queries.sql", "record_call_sequence")


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
    check_outcome: OutcomeType | None,
) -> None:
    """Replaces the scores of a trace (evaluator → scores), its conflict, and what a declared check
    says.
    """
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
            "check_outcome": check_outcome,
        },
    )


async def count_successes(session: AsyncSession, trace: TraceRow, calls: bytes, limit: int) -> int:
    """The number of other successes of the trace's playbook with this call sequence, at most
    `limit`.
    """
    parameters = {
        "tenant": current_tenant_id(session),
        "project": trace.project_id,
        "playbook": trace.playbook,
        "calls": calls,
        "trace": trace.id,
        "limit": limit,
    }
    return (await fetch_rows(session, COUNT_SUCCESSES, parameters))[0][0]


async def record_call_sequence(session: AsyncSession, trace_id: UUID, calls: bytes) -> None:
    parameters = {"tenant": current_tenant_id(session), "trace": trace_id, "calls": calls}
    await fetch_rows(session, RECORD_CALL_SEQUENCE, parameters)
