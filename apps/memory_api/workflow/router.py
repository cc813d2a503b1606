"""The workflow over HTTP (spec 2): answer a query with a playbook."""

from __future__ import annotations

from fastapi import APIRouter

from memory_api.api.deps import RuntimeDep, WaitHeader, Writer
from memory_api.api.problems import problems
from memory_api.api.route import RedactingRoute
from memory_api.core.schemas import body_example
from memory_api.runs.execution import execute_in_foreground
from memory_api.traces.intake import RunOptions, start_run_for_trace
from memory_api.traces.schemas import CreateTraceRequest
from memory_api.workflow.schemas import RunWorkflowRequest, RunWorkflowResponse
from memory_api.workflow.step import WORKFLOW, AnswerStep

router = APIRouter(tags=["workflow"], route_class=RedactingRoute)

QUERY = {"query": "The customer wants a refund of a pending order", "playbook": "support"}


@router.post("/workflow/run", include_in_schema=False)
@router.post(
    "/api/v1/workflow/run",
    summary="Answer a query with a playbook",
    responses=problems("budget_spent", "price_unknown", "queue_full", 502, "llm_paused", 504),
    openapi_extra=body_example(QUERY),
)
async def run_workflow(
    body: RunWorkflowRequest, runtime: RuntimeDep, caller: Writer, prefer: WaitHeader = ""
) -> RunWorkflowResponse:
    """Searches a playbook and answers the query with a model: load_playbook → search → generate.

    Without a model, the answer is the list of relevant bullets and `engine` is `rules`. The answer
    is stored as an open trace. Record its outcome with `POST /api/v1/traces/{trace_id}/outcome`,
    and Hansei learns from it. `/workflow/run` is another path of this route.
    """
    trace = CreateTraceRequest.model_validate(
        {
            "project_id": body.project_id,
            "playbook": body.playbook,
            "state": "open",
            "query": body.query,
            "task_description": body.query,
            "task_key": body.task_key,
            "events": [{"event_type": "user_message", "content": body.query}],
        }
    )
    started = await start_run_for_trace(runtime, caller, trace, RunOptions(WORKFLOW))
    step = AnswerStep(fall_back_to_rules=runtime.settings.on_model_failure == "rules")
    result = await execute_in_foreground(runtime, started.run, step, prefer)
    return RunWorkflowResponse.model_validate(result.data)
