"""Evaluations of a trace over HTTP."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from memory_api.api.deps import Reader, Session
from memory_api.api.problems import problems
from memory_api.api.route import ApiRoute
from memory_api.evaluation.queries import list_evaluations
from memory_api.evaluation.schemas import TraceEvaluation, TraceEvaluationPage
from memory_api.traces.open_traces import require_trace

router = APIRouter(prefix="/api/v1/traces", tags=["traces"], route_class=ApiRoute)


@router.get(
    "/{trace_id}/evaluations",
    summary="List the evaluations of a trace",
    responses=problems(404),
)
async def list_trace_evaluations(
    trace_id: UUID, session: Session, caller: Reader
) -> TraceEvaluationPage:
    """Lists the score of each evaluator and criterion, with reasons.

    A criterion without evidence in the trace has no score. The list is empty until the trace is
    evaluated.
    """
    await require_trace(session, trace_id, caller.project_id)
    rows = await list_evaluations(session, trace_id)
    items = [TraceEvaluation.model_validate(row, from_attributes=True) for row in rows]
    return TraceEvaluationPage(items=items)
