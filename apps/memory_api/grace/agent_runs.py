"""Changes of agent runs over the API: create, answer, cancel, feedback."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.auth.identity import Identity
from memory_api.collections.queries import list_collections
from memory_api.core.db import current_tenant_id
from memory_api.core.errors import Conflict, InvalidRequest, NotFound, field_problem
from memory_api.core.ids import new_id
from memory_api.grace import queries
from memory_api.grace.config import GraceConfig
from memory_api.grace.context import CONVERSATION, PREVIOUS_RUN, load_conversation
from memory_api.grace.corrections import enqueue_correction
from memory_api.grace.execution_plan import ExecutionPlan, find_plan_problems
from memory_api.grace.interventions import CONFIRM_PLAN, apply_answer, check_answer, enqueue_leg
from memory_api.grace.outcome import finish_agent_run
from memory_api.grace.schemas import (
    AnswerInterventionRequest,
    CreateAgentRunRequest,
    RecordAgentFeedbackRequest,
)
from memory_api.grace.tables import AgentRunRow, AgentStepRow
from memory_api.grace.tools.registry import available_tools
from memory_api.runtime import Runtime
from memory_api.traces.intake import TraceIntake
from memory_api.traces.open_traces import record_outcome
from memory_api.traces.queries import get_trace
from memory_api.traces.redaction import redact_change
from memory_api.traces.schemas import RecordOutcomeRequest

ENDED = ("done", "failed", "cancelled")


async def create_agent_run(
    runtime: Runtime,
    session: AsyncSession,
    project_id: str,
    body: CreateAgentRunRequest,
    config: GraceConfig,
) -> AgentRunRow:
    """Store a run and queue it. Raises `InvalidRequest` for an unknown collection or a plan that is
    not valid, and `QueueFull`.
    """
    plan = None
    if body.plan is not None:
        plan = _parse_plan(body, config, has_model=runtime.llm is not None)
    in_plan = [step.collection for step in plan.steps if step.collection] if plan else []
    if body.collections or in_plan:
        rows = await list_collections(session, project_id)
        known = [row.name for row in rows if row.state == "active"]
        _check_collections(body.collections, known, field="collections")
        _check_collections(in_plan, known, field="plan")
    await runtime.queue.admit(session)
    options: dict[str, Any] = {}
    if body.interactive is not None:
        options["interactive"] = body.interactive
    if body.previous_run_id is not None:
        conversation = await load_conversation(session, project_id, body.previous_run_id)
        options |= {CONVERSATION: conversation, PREVIOUS_RUN: str(body.previous_run_id)}
    if body.confirm_plan:
        options[CONFIRM_PLAN] = True
        plan = plan and plan.model_copy(update={"requires_confirmation": True})
    agent_run = AgentRunRow(
        tenant_id=current_tenant_id(session),
        id=new_id(),
        project_id=project_id,
        query=body.query,
        playbook=body.playbook,
        collections=body.collections,
        state="queued",
        event_count=0,
        options=options,
    )
    session.add(agent_run)
    if plan is not None:
        agent_run.plan, agent_run.plan_number = plan.model_dump(mode="json"), 1
    await session.flush()
    for step in plan.steps if plan is not None else ():
        session.add(
            AgentStepRow(
                tenant_id=agent_run.tenant_id,
                agent_run_id=agent_run.id,
                plan_number=1,
                step_id=step.step_id,
                spec=step.model_dump(mode="json"),
            )
        )
    await queries.add_events(session, agent_run, [("run_queued", {"query": body.query[:1_000]})])
    await enqueue_leg(runtime, session, agent_run)
    return agent_run


def _check_collections(wanted: Sequence[str], known: Sequence[str], *, field: str) -> None:
    unknown = [name for name in wanted if name not in known]
    if unknown:
        names = ", ".join(f"'{name}'" for name in sorted(known)[:20]) or "none"
        raise InvalidRequest(
            f"Unknown collection '{unknown[0]}'. This project has: {names}.", field=field
        )


def _parse_plan(
    body: CreateAgentRunRequest, config: GraceConfig, *, has_model: bool
) -> ExecutionPlan:
    tools = frozenset(available_tools(config, has_model=has_model))
    try:
        plan = ExecutionPlan.model_validate(
            (body.plan or {}) | {"original_query": body.query, "engine": "caller"}
        )
    except ValidationError as error:
        first = error.errors()[0]
        problem = field_problem(first | {"loc": ("plan", *first["loc"])})
        raise InvalidRequest(str(problem), field=problem.field) from error
    problems = find_plan_problems(plan, tools, config.planner.max_steps)
    if problems:
        raise InvalidRequest(problems[0], field="plan")
    return plan.end_with_answer().depend_on_variables()


async def require_agent_run(
    session: AsyncSession, caller: Identity, agent_run_id: UUID, *, for_update: bool = False
) -> AgentRunRow:
    """Raises `NotFound`, also for a run of another project than the key's."""
    agent_run = await queries.get_agent_run(session, agent_run_id, for_update=for_update)
    if agent_run is None or caller.project_id not in (None, agent_run.project_id):
        raise NotFound("Agent run not found.")
    return agent_run


async def answer_intervention(
    runtime: Runtime,
    session: AsyncSession,
    agent_run: AgentRunRow,
    intervention_id: UUID,
    body: AnswerInterventionRequest,
    actor: str,
) -> None:
    """Apply an answer to a locked run, which then goes on. Raises `NotFound`, `Conflict` if it is
    answered already, and `InvalidRequest`.
    """
    row = await queries.get_intervention(session, agent_run.id, intervention_id)
    if row is None:
        raise NotFound("Intervention not found.")
    check_answer(row, body.action, body.input)
    await apply_answer(session, agent_run, row, body.action, body.input, actor=actor)
    await enqueue_leg(runtime, session, agent_run)


async def cancel_agent_run(
    runtime: Runtime, session: AsyncSession, agent_run: AgentRunRow, config: GraceConfig
) -> None:
    """Cancel a locked run: at once if no worker has it, otherwise within about a second. A run that
    has ended stays as it is.
    """
    if agent_run.state in ENDED:
        return
    agent_run.cancel_requested = True
    if agent_run.state == "running":
        return
    row = await queries.get_open_intervention(session, agent_run.id)
    if row is not None:
        row.state, row.answered_at = "cancelled", datetime.now(UTC)
    await finish_agent_run(runtime, session, agent_run, config, status="cancelled")


async def record_agent_feedback(
    runtime: Runtime,
    session: AsyncSession,
    caller: Identity,
    agent_run: AgentRunRow,
    body: RecordAgentFeedbackRequest,
) -> None:
    """Record whether the answer was right, and the outcome of the trace, from which Hansei then
    learns. The same feedback again changes nothing. Raises `Conflict`.
    """
    if agent_run.state not in ("done", "failed"):
        raise Conflict(
            f"The run is {agent_run.state}. Feedback is for runs that are done or failed."
        )
    if agent_run.feedback is not None:
        if (agent_run.feedback, agent_run.feedback_answer) == (body.feedback, body.answer):
            return
        raise Conflict("This run already has other feedback.")
    agent_run.feedback, agent_run.feedback_answer = body.feedback, body.answer
    agent_run.feedback_at = datetime.now(UTC)
    await queries.add_events(
        session, agent_run, [("feedback_recorded", {"feedback": body.feedback})]
    )
    await enqueue_correction(runtime, session, agent_run)
    if agent_run.trace_id is None:
        return
    trace = await get_trace(session, agent_run.trace_id, for_update=True)
    if trace is None or trace.outcome in ("failure", "partial"):
        return  # a run without an answer was learned from when it ended
    if trace.outcome == "success":  # by the agent's own confidence, which a person overrules
        if body.feedback == "right":
            return
        trace.outcome = None
    outcome: dict[str, Any] = {"outcome": "success" if body.feedback == "right" else "failure"}
    if body.answer is not None:
        outcome["ground_truth"] = body.answer
    recorded = RecordOutcomeRequest.model_validate(outcome)
    record_outcome(trace, redact_change(recorded))
    intake = TraceIntake(runtime, caller, "auto")
    await intake.accept_stored(session, trace, sanitized=False)
