"""Evaluations of a trace over HTTP."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from apps.memory_api.api_route import ApiRoute
from apps.memory_api.core.schemas import Page
from apps.memory_api.deps import Reader, Session
from apps.memory_api.evaluation.queries import list_evaluations
from apps.memory_api.evaluation.schemas import EvaluationView
from apps.memory_api.traces.stream import find_trace

router = APIRouter(prefix="/api/v1/traces", tags=["traces"], route_class=ApiRoute)


@router.get("/{trace_id}/evaluations")
async def evaluations(trace_id: UUID, session: Session, caller: Reader) -> Page[EvaluationView]:
    """How a run went, by each evaluator and criterion, with reasons. A criterion that nothing in
    the trace speaks to has no score; there is nothing before the trace was evaluated.
    """
    await find_trace(session, trace_id, caller.project_id)
    rows = await list_evaluations(session, trace_id)
    names = EvaluationView.model_fields
    return Page[EvaluationView](
        items=[EvaluationView(**{name: getattr(row, name) for name in names}) for row in rows]
    )
