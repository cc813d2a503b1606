"""Reflections over HTTP (spec 5)."""

from __future__ import annotations

from typing import Annotated, Any, cast
from uuid import UUID

from fastapi import APIRouter, Header, Response
from fastapi.responses import JSONResponse

from apps.memory_api.api_route import ApiRoute
from apps.memory_api.core.errors import Conflict
from apps.memory_api.core.openapi import example
from apps.memory_api.deps import Cleaned, Reader, ReservedDep, RuntimeDep, Writer
from apps.memory_api.memory.router import show
from apps.memory_api.reflection.foreground import reflect_now
from apps.memory_api.reflection.lessons import bring_reflection, find_lessons
from apps.memory_api.reflection.schemas import (
    AcceptedAnswer,
    Brought,
    GenerateAnswer,
    GenerateIn,
    NewReflection,
    ReflectionHit,
    ReflectionQuery,
    ReflectionResult,
    ReflectionsAnswer,
)

router = APIRouter(prefix="/api/v1/reflections", tags=["reflections"], route_class=ApiRoute)

GENERATE = {
    "project_id": "default",
    "events": [
        {"event_type": "tool_call", "tool_name": "postgres_query",
         "content": "SELECT * FROM orders JOIN customers ON …"},
        {"event_type": "error_event", "content": "Query timeout after 30 seconds",
         "error": {"message": "Timeout", "code": "QUERY_TIMEOUT"}},
    ],
    "outcome": "timeout",
    "error": {"error_category": "timeout_error", "error_message": "Query exceeded 30s"},
    "task_description": "Fetch customer order history",
}  # fmt: skip
BRING = {
    "reflection_text": "The refund was refused because the order was still pending.",
    "strategy_text": "Check an order's status before a refund; cancel it when it is pending.",
    "importance": 0.7,
    "confidence": 0.9,
    "tags": ["refund"],
}
QUERY = {"query_text": "database timeout", "k": 5, "min_importance": 0.5, "tags": ["timeout"]}
ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": AcceptedAnswer, "description": "`Location` is the run to look at."}
}
WITNESSED: dict[int | str, dict[str, Any]] = {
    200: {"model": Brought, "description": "This was said before; it has one witness more."}
}


@router.post("/generate", responses=ACCEPTED, openapi_extra=example(GENERATE))
async def generate(
    body: GenerateIn,
    runtime: RuntimeDep,
    caller: Writer,
    cleaned: Cleaned,
    reserved: ReservedDep,
    prefer: Annotated[str, Header(description="`respond-async`: answer 202 at once.")] = "",
) -> GenerateAnswer:
    """Reflect on one run: what happened and why, and a rule for the next time.

    The trace and the run are stored before anything else, so nothing sent is lost. With nothing to
    learn, `reflection_id` is null and `result` is `nothing_found`.
    """
    if not runtime.settings.reflective_memory_enabled:
        raise Conflict("Reflection is switched off (REFLECTIVE_MEMORY_ENABLED).")
    wait = "respond-async" not in prefer.lower()
    trace_id = reserved.trace_id() if reserved else None
    accepted = await reflect_now(runtime, caller, body, wait=wait, trace_id=trace_id)
    if accepted.answer is None:
        return cast(
            GenerateAnswer, later(accepted.run_id, accepted.trace_id, accepted.state, cleaned)
        )
    return accepted.answer.model_copy(update={"cleaned": cleaned})


def later(run_id: UUID, trace_id: UUID, state: str, cleaned: bool) -> JSONResponse:
    """The answer to who does not wait, or sends again what is still being looked at."""
    body = AcceptedAnswer(run_id=run_id, trace_id=trace_id, state=state, cleaned=cleaned)
    headers = {"Location": f"/api/v1/runs/{run_id}", "Preference-Applied": "respond-async"}
    return JSONResponse(body.model_dump(mode="json"), status_code=202, headers=headers)


@router.post("", status_code=201, responses=WITNESSED, openapi_extra=example(BRING))
async def bring(
    body: NewReflection, runtime: RuntimeDep, caller: Writer, response: Response, cleaned: Cleaned
) -> Brought:
    """Store a reflection of your own, with its strategy. No model is called."""
    result = ReflectionResult(**body.model_dump(include=set(ReflectionResult.model_fields)))
    kept = await bring_reflection(
        runtime,
        caller.tenant_id,
        caller.project(body.project_id),
        result,
        session_id=body.session_id,
        trace_id=body.trace_id,
    )
    response.status_code = 201 if kept[0].new else 200
    response.headers["Location"] = f"/api/v1/memories/{kept[0].memory_id}"
    return Brought(
        reflection_id=kept[0].memory_id,
        strategy_id=kept[1].memory_id if len(kept) > 1 else None,
        result="stored" if kept[0].new else "witnessed",
        cleaned=cleaned,
    )


@router.post("/query", openapi_extra=example(QUERY))
async def query(body: ReflectionQuery, runtime: RuntimeDep, caller: Reader) -> ReflectionsAnswer:
    """The lessons that matter for a task: reflections, strategies and insights, best first."""
    project_id = caller.project(body.project_id)
    hits = await find_lessons(runtime, caller.tenant_id, project_id, body)
    found = [
        ReflectionHit(**show(hit.memory).model_dump(), score=hit.combined_score) for hit in hits
    ]
    return ReflectionsAnswer(reflections=found)
