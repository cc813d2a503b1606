"""Agent runs over HTTP: create, read, follow, answer, cancel, give feedback."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from memory_api.api.deps import (
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Session,
    Writer,
    project_filter,
)
from memory_api.api.problems import problems
from memory_api.api.route import RedactingRoute
from memory_api.core.errors import InvalidRequest, NotFound
from memory_api.core.pagination import to_page
from memory_api.core.schemas import body_example
from memory_api.grace import agent_runs, queries
from memory_api.grace.calibration import (
    learn_from_feedback,
    load_calibration,
    reset_calibration,
)
from memory_api.grace.config import load_config
from memory_api.grace.context import CONVERSATION, PREVIOUS_RUN
from memory_api.grace.events import feed_of, stream_events
from memory_api.grace.execution_plan import ExecutionResult, PlanStepResult
from memory_api.grace.leg import read_state
from memory_api.grace.schemas import (
    AgentCalibration,
    AgentExecution,
    AgentRun,
    AgentRunPage,
    AgentRunState,
    AnswerInterventionRequest,
    CreateAgentRunRequest,
    EarlierAnswer,
    Intervention,
    InterventionPage,
    PlanStepView,
    RecordAgentFeedbackRequest,
)
from memory_api.grace.tables import AgentRunRow, AgentStepRow, InterventionRow

router = APIRouter(prefix="/api/v1/agents", tags=["agents"], route_class=RedactingRoute)

QUESTION = {"query": "Can a pending order be refunded?", "playbook": "support"}


def step_response(row: AgentStepRow) -> PlanStepView:
    result = PlanStepResult.model_validate(row.result) if row.result else None
    return PlanStepView(
        step_id=row.step_id,
        action=row.spec["action"],
        description=row.spec["description"],
        query=row.spec.get("query"),
        collection=row.spec.get("collection"),
        depends_on=row.spec.get("depends_on", []),
        fallback=row.spec.get("fallback"),
        state=row.state,
        attempt_count=row.attempt_count,
        output=result.output if result else None,
        confidence=row.confidence,
        breakdown=result.breakdown if result else {},
        penalties=result.penalties if result else [],
        level=result.level if result else None,
        sources=result.sources if result else [],
        error=result.error if result else None,
    )


def intervention_response(row: InterventionRow) -> Intervention:
    return Intervention.model_validate(row, from_attributes=True)


def agent_run_response(
    row: AgentRunRow,
    steps: list[PlanStepView] | None = None,
    question: InterventionRow | None = None,
) -> AgentRun:
    result: dict[str, Any] = row.result or {}
    plan: dict[str, Any] = row.plan or {}
    return AgentRun(
        id=row.id,
        project_id=row.project_id,
        query=row.query,
        playbook=row.playbook,
        collections=row.collections,
        state=row.state,  # pyright: ignore[reportArgumentType]
        outcome=result.get("overall_status"),
        answer=result.get("final_answer"),
        found=result.get("found"),
        confidence=result.get("calibrated_confidence"),
        sources=result.get("sources", []),
        plan_id=plan.get("plan_id"),
        complexity=plan.get("complexity"),
        engine=plan.get("engine"),
        cited_bullet_keys=plan.get("cited_bullet_keys", []),
        steps=steps or [],
        intervention=intervention_response(question) if question is not None else None,
        replan_count=row.replan_count,
        token_count=row.token_count,
        cost_usd=row.known_cost_usd,
        error=row.error,
        feedback=row.feedback,
        previous_run_id=row.options.get(PREVIOUS_RUN),
        conversation=[EarlierAnswer(**each) for each in row.options.get(CONVERSATION, ())],
        trace_id=row.trace_id,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


async def _full_response(session: Session, row: AgentRunRow) -> AgentRun:
    steps = [step_response(step) for step in await queries.load_steps(session, row)]
    question = await queries.get_open_intervention(session, row.id)
    return agent_run_response(row, steps, question)


@router.post(
    "/runs",
    status_code=202,
    summary="Ask the agent",
    responses=problems("queue_full"),
    openapi_extra=body_example(QUESTION),
)
async def create_agent_run(
    body: CreateAgentRunRequest,
    runtime: RuntimeDep,
    session: Session,
    caller: Writer,
    response: Response,
) -> AgentRun:
    """Queues a run of the agent: it plans, searches the collections, answers with sources, and asks
    a person if it is not sure.

    Follow it with `GET /api/v1/agents/runs/{agent_run_id}/events`. Without a model, the plan is
    search and answer, and the answer consists of sentences of the documents.
    """
    project_id = caller.resolve_project(body.project_id)
    row = await agent_runs.create_agent_run(runtime, session, project_id, body, load_config())
    response.headers["Location"] = f"/api/v1/agents/runs/{row.id}"
    steps = await queries.load_steps(session, row) if row.plan else ()
    return agent_run_response(row, [step_response(step) for step in steps])


@router.get("/runs", summary="List agent runs", responses=problems(422))
async def list_agent_runs(
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    project_id: ProjectQuery,
    state: Annotated[AgentRunState | None, Query(description="Only runs in this state.")] = None,
    limit: Limit = 50,
) -> AgentRunPage:
    """Lists agent runs, newest first, without their steps."""
    rows = await queries.list_agent_runs(
        session,
        project_id=project_filter(caller, project_id),
        state=state,
        cursor=cursor,
        limit=limit,
    )
    return to_page(AgentRunPage, rows, limit, agent_run_response)


@router.get("/runs/{agent_run_id}", summary="Get an agent run", responses=problems(404))
async def get_agent_run(agent_run_id: UUID, session: Session, caller: Reader) -> AgentRun:
    """Returns a run with its steps, their confidence, and the open question."""
    row = await agent_runs.require_agent_run(session, caller, agent_run_id)
    return await _full_response(session, row)


@router.get(
    "/runs/{agent_run_id}/execution",
    summary="Get the execution state of an agent run",
    responses=problems(404),
)
async def get_agent_execution(
    agent_run_id: UUID, session: Session, caller: Reader
) -> AgentExecution:
    """Returns the plan, the results of its steps and the outcome, in the form in which the agent
    works with them.
    """
    row = await agent_runs.require_agent_run(session, caller, agent_run_id)
    steps = await queries.load_steps(session, row)
    return AgentExecution(
        agent_run_id=row.id,
        state=row.state,  # pyright: ignore[reportArgumentType]
        plan=read_state(row, steps).plan if row.plan else None,
        step_states={step.step_id: step.state for step in steps},  # pyright: ignore[reportArgumentType]
        step_results=[PlanStepResult.model_validate(step.result) for step in steps if step.result],
        result=ExecutionResult.model_validate(row.result) if row.result else None,
    )


@router.get(
    "/runs/{agent_run_id}/events",
    summary="Follow an agent run",
    responses=problems(404)
    | {200: {"description": "Server-sent events.", "content": {"text/event-stream": {}}}},
    response_class=StreamingResponse,
)
async def stream_agent_events(
    agent_run_id: UUID,
    runtime: RuntimeDep,
    caller: Reader,
    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="Continue after the event of this number."),
    ] = None,
    follow: Annotated[
        bool,
        Query(description="False: answer as soon as there are events, for clients that poll."),
    ] = True,
) -> StreamingResponse:
    """Streams what happens as server-sent events with an `id`, an `event` and `data` in JSON.

    The stream ends when the run has ended or waits for a person. Connect again with `Last-Event-ID`
    after the answer. Without events, it sends a comment every 15 seconds. If the service loses its
    database, it ends with an event `error` without `id`: connect again.
    """
    if last_event_id is not None and not (last_event_id.isdecimal() and len(last_event_id) < 10):
        raise InvalidRequest("`Last-Event-ID` must be the `id` of an event.", field="Last-Event-ID")
    feed = feed_of(runtime.sessions)
    stream = await feed.open(caller, agent_run_id, int(last_event_id or 0))
    if stream.project_id is None or caller.project_id not in (None, stream.project_id):
        feed.close(stream)
        raise NotFound("Agent run not found.")
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        stream_events(feed, stream, follow=follow),
        media_type="text/event-stream",
        headers=headers,
    )


@router.get(
    "/runs/{agent_run_id}/interventions", summary="List interventions", responses=problems(404)
)
async def list_interventions(
    agent_run_id: UUID, session: Session, caller: Reader
) -> InterventionPage:
    """Lists the questions of a run to a person, oldest first."""
    row = await agent_runs.require_agent_run(session, caller, agent_run_id)
    rows = await queries.list_interventions(session, row.id)
    return InterventionPage(items=[intervention_response(each) for each in rows])


@router.post(
    "/runs/{agent_run_id}/interventions/{intervention_id}/answer",
    status_code=202,
    summary="Answer an intervention",
    responses=problems(404, 409),
    openapi_extra=body_example({"action": "input", "input": "Search for cancelled orders"}),
)
async def answer_intervention(
    agent_run_id: UUID,
    intervention_id: UUID,
    body: AnswerInterventionRequest,
    runtime: RuntimeDep,
    session: Session,
    caller: Writer,
) -> AgentRun:
    """Answers the open question of a run, which then goes on. Answers 409 if it is answered."""
    row = await agent_runs.require_agent_run(session, caller, agent_run_id, for_update=True)
    await agent_runs.answer_intervention(runtime, session, row, intervention_id, body, caller.actor)
    return await _full_response(session, row)


@router.post("/runs/{agent_run_id}/cancel", summary="Cancel an agent run", responses=problems(404))
async def cancel_agent_run(
    agent_run_id: UUID, runtime: RuntimeDep, session: Session, caller: Writer
) -> AgentRun:
    """Cancels a run. A worker that executes it stops within about a second. A run that has ended
    stays as it is.
    """
    row = await agent_runs.require_agent_run(session, caller, agent_run_id, for_update=True)
    await agent_runs.cancel_agent_run(runtime, session, row, load_config())
    return await _full_response(session, row)


@router.post(
    "/runs/{agent_run_id}/feedback",
    summary="Give feedback on an answer",
    responses=problems(404, 409, "queue_full"),
    openapi_extra=body_example({"feedback": "wrong", "answer": "Yes, within one hour."}),
)
async def record_agent_feedback(
    agent_run_id: UUID,
    body: RecordAgentFeedbackRequest,
    runtime: RuntimeDep,
    session: Session,
    caller: Writer,
) -> AgentRun:
    """Records whether the answer was right. The trace of the run gets this outcome and is learned
    from; thresholds and calibration of the project are adjusted.
    """
    row = await agent_runs.require_agent_run(session, caller, agent_run_id, for_update=True)
    await agent_runs.record_agent_feedback(runtime, session, caller, row, body)
    await learn_from_feedback(session, row.project_id, load_config())
    return await _full_response(session, row)


@router.get("/calibration", summary="Get thresholds and calibration")
async def get_calibration(
    session: Session, caller: Reader, project_id: ProjectQuery
) -> AgentCalibration:
    """Returns the thresholds of a project, and how well its confidence fits the feedback."""
    return await load_calibration(session, caller.resolve_project(project_id), load_config())


@router.delete("/calibration", status_code=204, summary="Reset thresholds and calibration")
async def reset_agent_calibration(
    session: Session, caller: Writer, project_id: ProjectQuery
) -> None:
    """Restores the configured thresholds. Earlier feedback no longer counts."""
    await reset_calibration(session, caller.resolve_project(project_id), load_config())
