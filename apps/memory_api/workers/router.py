"""The workflow over HTTP (spec 2)."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter

from apps.memory_api.api_route import SecretlessRoute
from apps.memory_api.core.openapi import example
from apps.memory_api.deps import RuntimeDep, Writer
from apps.memory_api.playbook.rows import Place
from apps.memory_api.reflection.attend import attend, begin
from apps.memory_api.traces.schemas import TraceIn
from apps.memory_api.workers.answer import WORKFLOW, answer_query
from apps.memory_api.workers.answer_wire import WorkflowAnswer, WorkflowRequest

router = APIRouter(prefix="/workflow", tags=["workflow"], route_class=SecretlessRoute)

QUERY = {"query": "The customer wants a refund of a pending order", "dataset": "appworld"}


@router.post("/run", openapi_extra=example(QUERY))
async def run(body: WorkflowRequest, runtime: RuntimeDep, caller: Writer) -> WorkflowAnswer:
    """Answer a query with what a playbook knows: load_playbook → search → generate.

    Without a model the answer is the bullets that matter, and `engine` says rules. What happened is
    kept as a trace; report how it turned out to POST /api/v1/traces/{trace_id}/outcome, and it is
    learnt from: reflect → curate.
    """
    project_id = caller.project(body.project_id)
    place = Place(project_id, body.dataset)
    asked = TraceIn.model_validate(
        {
            "playbook": place.name,
            "state": "open",
            "query": body.query,
            "task_description": body.query,
            "task_key": body.task_key,
            "events": [{"event_type": "user_message", "content": body.query}],
        }
    )
    begun = await begin(runtime, caller.tenant_id, asked, project_id, WORKFLOW, {}, wait=True)
    or_rules = runtime.settings.on_model_failure == "rules"
    work = partial(answer_query, or_rules=or_rules)
    return await attend(runtime, begun.run, work)
