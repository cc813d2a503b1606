"""Reflection on trajectories over HTTP (spec 1)."""

from __future__ import annotations

from fastapi import APIRouter

from memory_api.api.deps import PreferHeader, RuntimeDep, Sanitized, Writer
from memory_api.api.problems import problems
from memory_api.api.route import LargeBodyRoute
from memory_api.core.schemas import body_example
from memory_api.llm.errors import LLMError
from memory_api.reflection.foreground import (
    ACCEPTED_RESPONSES,
    ForegroundReflection,
    reflect_in_foreground,
)
from memory_api.reflection.pipeline import LearningStep
from memory_api.reflection.schemas import ModelFailure
from memory_api.reflection.trajectories.conversion import (
    trajectory_error,
    trajectory_events,
    trajectory_outcome,
)
from memory_api.reflection.trajectories.schemas import (
    ReflectOnTrajectoryRequest,
    ReflectOnTrajectoryResponse,
)
from memory_api.reflection.trajectories.step import TRAJECTORY, TrajectoryLearner
from memory_api.traces.intake import StartedRun
from memory_api.traces.schemas import CreateTraceRequest
from memory_api.traces.storage import content_external_id

router = APIRouter(prefix="/api/v1/trajectories", tags=["reflections"], route_class=LargeBodyRoute)

REFLECT = {
    "trajectory": {
        "query": "Return the last n lines of a file.",
        "generated_answer": "open(path).read().split('\\n')[-n:]",
        "reasoning_steps": ["Read the file, split it by line breaks, take the last n."],
        "used_bullet_ids": [],
    },
    "ground_truth": "open(path).read().splitlines()[-n:]",
    "test_report": "FAILED test_tail.py::test_newline - assert ['b', ''] == ['a', 'b']",
    "playbook": "coding",
}


@router.post(
    "/reflect",
    summary="Reflect on a trajectory",
    responses=ACCEPTED_RESPONSES
    | problems("budget_spent", "price_unknown", 409, "queue_full", 502, "llm_paused", 504),
    openapi_extra=body_example(REFLECT),
)
async def reflect_on_trajectory(
    body: ReflectOnTrajectoryRequest,
    runtime: RuntimeDep,
    caller: Writer,
    sanitized: Sanitized,
    prefer: PreferHeader = "",
) -> ReflectOnTrajectoryResponse:
    """Returns insights about how an agent came to its answer, and a verdict on each bullet it used.

    The trace and the run are stored first. The same trajectory sent again gets the first result. If
    the model fails, the result is empty and the failed run has the cause.
    """
    request = ForegroundReflection(
        trajectory_to_trace(body),
        LearningStep(TrajectoryLearner()),
        ReflectOnTrajectoryResponse,
        prefer,
        sanitized,
        empty_response=lambda started, error: _empty_response(body, started, error),
    )
    return await reflect_in_foreground(runtime, caller, request)


def trajectory_to_trace(body: ReflectOnTrajectoryRequest) -> CreateTraceRequest:
    """The trajectory as a trace. Without an `external_id`, a hash of the content identifies it."""
    trajectory = body.trajectory
    content = body.model_dump(mode="json", exclude={"tenant_id", "project_id", "max_iterations"})
    return CreateTraceRequest(
        project_id=body.project_id,
        external_id=body.external_id or content_external_id(TRAJECTORY, content),
        task_key=body.task_key,
        playbook=body.playbook,
        session_id=body.session_id,
        task_description=trajectory.query or None,
        outcome=trajectory_outcome(trajectory, body.ground_truth, body.test_report),
        error=trajectory_error(trajectory),
        query=trajectory.query,
        generated_answer=trajectory.generated_answer,
        reasoning_steps=trajectory.reasoning_steps,
        ground_truth=body.ground_truth or None,
        test_report=body.test_report or None,
        used_bullet_keys=trajectory.used_bullet_ids,
        retrieval_id=body.retrieval_id,
        events=trajectory_events(trajectory),
    )


def _empty_response(
    body: ReflectOnTrajectoryRequest, started: StartedRun, error: LLMError
) -> ReflectOnTrajectoryResponse:
    """The answer that S1 asks for when the model fails."""
    return ReflectOnTrajectoryResponse(
        insights=[],
        bullet_evaluations=[],
        trajectory_query=body.trajectory.query,
        trajectory_dataset=body.playbook or "",
        iteration_count=0,
        run_id=started.run.id,
        trace_id=started.trace_id,
        degraded=True,
        error=ModelFailure(code=error.code, message=error.detail),
    )
