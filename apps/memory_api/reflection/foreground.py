"""Reflects while the client waits, for all three forms of a trace: 200 with the answer, 202 with
the run, or the answer to an earlier request.

Trace and run are stored first, so nothing is lost if this process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from memory_api.auth.identity import Identity
from memory_api.core.errors import Conflict
from memory_api.llm.errors import LLMError, LLMOverBudget
from memory_api.reflection.lesson_storage import degraded_run_of
from memory_api.reflection.pipeline import LearningStep
from memory_api.reflection.schemas import RunAccepted
from memory_api.runs.execution import execute_in_foreground
from memory_api.runs.queries import get_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.intake import RunOptions, StartedRun, start_run_for_trace
from memory_api.traces.schemas import CreateTraceRequest

Response = TypeVar("Response", bound=BaseModel)

ACCEPTED_RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {"model": RunAccepted, "description": "The run is not finished. `Location` is the run."}
}


@dataclass(frozen=True)
class ForegroundReflection(Generic[Response]):
    """One request to reflect on a trace, trajectory or transcript."""

    trace: CreateTraceRequest
    step: LearningStep
    response_type: type[Response]
    prefer: str
    """The request header: `respond-async` asks for 202 at once, `wait=N` for an answer within N
    seconds.
    """
    sanitized: bool
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    trace_id: UUID | None = None
    is_answered_by: Callable[[RunRow], bool] = lambda run: True
    empty_response: Callable[[StartedRun, LLMError], Response] | None = None
    """The answer if the model fails; without it, the `LLMError` is raised."""

    @property
    def wait(self) -> bool:
        return "respond-async" not in self.prefer.lower()


async def reflect_in_foreground(
    runtime: Runtime, caller: Identity, request: ForegroundReflection[Response]
) -> Response:
    """Store the trace and reflect on it, or leave that to a worker.

    The result is a `response_type`, or a 202 response (`RunAccepted`) if the client does not wait
    or the run of an earlier request is not finished. Raises `Conflict` if reflection is switched
    off, `QueueFull`, `LLMOverBudget`, and an `LLMError` with HANSEI_ON_MODEL_FAILURE=fail.
    """
    settings = runtime.settings
    if not settings.reflective_memory_enabled:
        raise Conflict("Reflection is disabled: REFLECTIVE_MEMORY_ENABLED is false.")
    options = RunOptions(
        request.step.kind, request.input, request.wait, request.trace_id, request.is_answered_by
    )
    started = await start_run_for_trace(runtime, caller, request.trace, options)
    run = started.run
    if started.is_duplicate:
        run = await _find_readable_run(runtime, run)
        if run.state == "done":
            return _to_response(request, run.result, duplicate=True)
    if started.is_duplicate or not request.wait:
        accepted = _accepted_response(started.trace_id, run, sanitized=request.sanitized)
        return cast(Response, accepted)
    try:
        result = await execute_in_foreground(runtime, run, request.step, request.prefer)
    except LLMError as error:
        is_final = isinstance(error, LLMOverBudget)
        if is_final or request.empty_response is None or settings.on_model_failure == "fail":
            raise
        response = request.empty_response(started, error)
        return response.model_copy(update={"sanitized": request.sanitized})
    return _to_response(request, result.data, duplicate=False)


async def _find_readable_run(runtime: Runtime, run: RunRow) -> RunRow:
    """The run with the current answer: a degraded run until its lessons have been replaced."""
    if run.state == "done" or degraded_run_of(run) is None or run.parent_id is None:
        return run
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        return await get_run(session, run.parent_id) or run


def _to_response(
    request: ForegroundReflection[Response], result: Any, *, duplicate: bool
) -> Response:
    response = request.response_type.model_validate(result)
    return response.model_copy(update={"duplicate": duplicate, "sanitized": request.sanitized})


def _accepted_response(trace_id: UUID, run: RunRow, *, sanitized: bool) -> JSONResponse:
    body = RunAccepted(run_id=run.id, trace_id=trace_id, state=run.state, sanitized=sanitized)
    headers = {"Location": f"/api/v1/runs/{run.id}", "Preference-Applied": "respond-async"}
    return JSONResponse(body.model_dump(mode="json"), status_code=202, headers=headers)
