"""Reflections over HTTP (spec 5): generate, store, search."""

from __future__ import annotations

from fastapi import APIRouter, Response

from memory_api.api.deps import PreferHeader, Reader, Reservation, RuntimeDep, Sanitized, Writer
from memory_api.api.problems import Responses, problems
from memory_api.api.route import LargeBodyRoute
from memory_api.core.schemas import body_example
from memory_api.memories.schemas import Memory
from memory_api.reflection import lesson_storage
from memory_api.reflection.foreground import (
    ACCEPTED_RESPONSES,
    ForegroundReflection,
    reflect_in_foreground,
)
from memory_api.reflection.lesson_storage import search_lessons
from memory_api.reflection.pipeline import LearningStep
from memory_api.reflection.schemas import (
    CreateReflectionRequest,
    CreateReflectionResponse,
    GenerateReflectionRequest,
    GenerateReflectionResponse,
    QueryReflectionsRequest,
    QueryReflectionsResponse,
    ReflectionHit,
    ReflectionResult,
)
from memory_api.reflection.step import TraceLearner
from memory_api.traces.schemas import CreateTraceRequest

router = APIRouter(prefix="/api/v1/reflections", tags=["reflections"], route_class=LargeBodyRoute)

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
NEW_REFLECTION = {
    "reflection_text": "The refund was refused because the order was still pending.",
    "strategy_text": "Check an order's status before a refund; cancel it when it is pending.",
    "importance": 0.7,
    "confidence": 0.9,
    "tags": ["refund"],
}
QUERY = {"query_text": "database timeout", "k": 5, "min_importance": 0.5, "tags": ["timeout"]}

ALREADY_KNOWN: Responses = {
    200: {
        "model": CreateReflectionResponse,
        "description": "A reflection with this text exists; its count of observations grew by one.",
    }
}


@router.post(
    "/generate",
    summary="Generate a reflection",
    responses=ACCEPTED_RESPONSES
    | problems("budget_spent", "price_unknown", 409, "queue_full", 502, "llm_paused", 504),
    openapi_extra=body_example(GENERATE),
)
async def generate_reflection(
    body: GenerateReflectionRequest,
    runtime: RuntimeDep,
    caller: Writer,
    sanitized: Sanitized,
    reserved: Reservation,
    prefer: PreferHeader = "",
) -> GenerateReflectionResponse:
    """Stores the events as a trace and generates a reflection: what happened and why, and a
    strategy for the next time.

    The trace and the run are stored first, so that no input is lost. If there is nothing to learn,
    `reflection_id` is null and `result` is `nothing_found`.
    """
    trace = CreateTraceRequest(**body.model_dump(exclude={"tenant_id"}))
    request = ForegroundReflection(
        trace,
        # If the model fails, the rules answer, and a later run replaces their lessons.
        LearningStep(
            TraceLearner(), fall_back_to_rules=runtime.settings.on_model_failure == "rules"
        ),
        GenerateReflectionResponse,
        prefer,
        sanitized,
        trace_id=reserved.trace_id() if reserved else None,
    )
    return await reflect_in_foreground(runtime, caller, request)


@router.post(
    "",
    status_code=201,
    summary="Store your own reflection",
    responses=ALREADY_KNOWN,
    openapi_extra=body_example(NEW_REFLECTION),
)
async def create_reflection(
    body: CreateReflectionRequest,
    runtime: RuntimeDep,
    caller: Writer,
    response: Response,
    sanitized: Sanitized,
) -> CreateReflectionResponse:
    """Stores a reflection, and its strategy if there is one. No model is called."""
    result = ReflectionResult(**body.model_dump(include=set(ReflectionResult.model_fields)))
    saved = await lesson_storage.create_reflection(
        runtime,
        caller.tenant_id,
        caller.resolve_project(body.project_id),
        result,
        session_id=body.session_id,
        trace_id=body.trace_id,
    )
    response.status_code = 201 if saved[0].is_new else 200
    response.headers["Location"] = f"/api/v1/memories/{saved[0].memory_id}"
    return CreateReflectionResponse(
        reflection_id=saved[0].memory_id,
        strategy_id=saved[1].memory_id if len(saved) > 1 else None,
        result="stored" if saved[0].is_new else "already_known",
        sanitized=sanitized,
    )


@router.post("/query", summary="Search reflections", openapi_extra=body_example(QUERY))
async def query_reflections(
    body: QueryReflectionsRequest, runtime: RuntimeDep, caller: Reader
) -> QueryReflectionsResponse:
    """Returns reflections, strategies and insights for a task, best first.

    `min_importance` is 0.5 unless given. Without `query_text`, orders by usefulness and importance.
    """
    project_id = caller.resolve_project(body.project_id)
    hits = await search_lessons(runtime, caller.tenant_id, project_id, body)
    reflections = [
        ReflectionHit(**Memory.from_row(hit.memory).model_dump(), score=hit.combined_score)
        for hit in hits
    ]
    return QueryReflectionsResponse(reflections=reflections)
