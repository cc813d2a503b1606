"""Trajectories over HTTP (spec 1)."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Header

from apps.memory_api.api_route import ApiRoute
from apps.memory_api.core.errors import Conflict
from apps.memory_api.core.openapi import example
from apps.memory_api.deps import Cleaned, RuntimeDep, Writer
from apps.memory_api.llm.errors import LLMError
from apps.memory_api.reflection.attend import Begun, attend, begin
from apps.memory_api.reflection.insights.run import ROUNDS, TRAJECTORY, reflect_trajectory
from apps.memory_api.reflection.insights.trace import error_of, events_of, identity, outcome_of
from apps.memory_api.reflection.insights.wire import Failed, TrajectoryAnswer, TrajectoryIn
from apps.memory_api.reflection.router import ACCEPTED, later
from apps.memory_api.traces.schemas import TraceIn

router = APIRouter(prefix="/api/v1/trajectories", tags=["reflections"], route_class=ApiRoute)

REFLECT = {
    "trajectory": {
        "query": "Return the last n lines of a file.",
        "generated_answer": "open(path).read().split('\\n')[-n:]",
        "reasoning_steps": ["Read the file, split it by line breaks, take the last n."],
        "used_bullet_ids": [],
    },
    "ground_truth": "open(path).read().splitlines()[-n:]",
    "test_report": "FAILED test_tail.py::test_newline - assert ['b', ''] == ['a', 'b']",
    "dataset": "coding",
}


@router.post("/reflect", responses=ACCEPTED, openapi_extra=example(REFLECT))
async def reflect(
    body: TrajectoryIn,
    runtime: RuntimeDep,
    caller: Writer,
    cleaned: Cleaned,
    prefer: Annotated[str, Header(description="`respond-async`: answer 202 at once.")] = "",
) -> TrajectoryAnswer:
    """Reflect on how an agent came to an answer: insights, and a verdict on each bullet it used.

    Trace and run are stored before anything else. The same trajectory sent again is not looked at
    again. When the model fails the result is empty, and the failed run holds the cause.
    """
    if not runtime.settings.reflective_memory_enabled:
        raise Conflict("Reflection is switched off (REFLECTIVE_MEMORY_ENABLED).")
    project_id = caller.project(body.project_id)
    wait = "respond-async" not in prefer.lower()
    rounds = {ROUNDS: body.max_iterations}
    begun = await begin(
        runtime, caller.tenant_id, trace_of(body), project_id, TRAJECTORY, rounds, wait=wait
    )
    if begun.known and begun.run.state == "done":
        answer = TrajectoryAnswer.model_validate(begun.run.result)
        return answer.model_copy(update={"duplicate": True, "cleaned": cleaned})
    if begun.known or not wait:
        return cast(TrajectoryAnswer, later(begun.run.id, begun.trace_id, begun.run.state, cleaned))
    try:
        answer = await attend(runtime, begun.run, reflect_trajectory)
    except LLMError as error:
        if runtime.settings.on_model_failure == "fail":
            raise
        answer = _nothing(body, begun, error)
    return answer.model_copy(update={"cleaned": cleaned})


def trace_of(body: TrajectoryIn) -> TraceIn:
    """The trajectory as a trace. Without an external_id of the caller's it is known by what is in
    it.
    """
    sent = body.trajectory
    content = body.model_dump(mode="json", exclude={"tenant_id", "project_id", "max_iterations"})
    return TraceIn(
        project_id=None,
        external_id=body.external_id or identity(TRAJECTORY, content),
        task_key=body.task_key,
        playbook=body.playbook,
        session_id=body.session_id,
        task_description=sent.query or None,
        outcome=outcome_of(sent, body.ground_truth, body.test_report),
        error=error_of(sent),
        query=sent.query,
        generated_answer=sent.generated_answer,
        reasoning_steps=sent.reasoning_steps,
        ground_truth=body.ground_truth or None,
        test_report=body.test_report or None,
        used_keys=sent.used_bullet_ids,
        render_id=body.render_id,
        events=events_of(sent),
    )


def _nothing(body: TrajectoryIn, begun: Begun, error: LLMError) -> TrajectoryAnswer:
    """Spec 1's answer when the model fails."""
    return TrajectoryAnswer(
        insights=[],
        bullet_evaluations=[],
        trajectory_query=body.trajectory.query,
        trajectory_dataset=body.playbook or "",
        iteration_count=0,
        run_id=begun.run.id,
        trace_id=begun.trace_id,
        degraded=True,
        error=Failed(code=error.code, message=error.detail),
    )
