"""Interventions: questions to a person as rows, and what an answer changes (S3.43–S3.47).

A wait is a row: it holds no memory, no connection and no task. Its timeout is a run that is queued
for later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.errors import Conflict, InvalidRequest
from memory_api.core.ids import new_id
from memory_api.grace import queries
from memory_api.grace.config import GraceConfig
from memory_api.grace.execution_plan import SEARCH_ACTIONS, PlanStep, PlanStepResult
from memory_api.grace.replanning import FEEDBACK_WORDS
from memory_api.grace.tables import CANCEL_REASON, AgentRunRow, AgentStepRow, InterventionRow
from memory_api.run_queue.port import Ticket
from memory_api.runs.lifecycle import new_run
from memory_api.runtime import Runtime
from memory_api.webhooks.outbox import WebhookEvent, add_event

AGENT = "agent"
"""The kind of run. Its input has the `agent_run_id`."""
PENDING_REPLAN, PENDING_QUESTION, ACCEPTED = "pending_replan", "pending_question", "accepted"
REWORDED = "reworded"
SEARCHED_AGAIN, CONFIRM_PLAN = "searched_again", "confirm_plan"
PERSON_INPUTS = "person_inputs"
"""Keys of `options`: a replan or a question that was decided and is not made yet; the steps whose
low confidence a person has accepted; those that use a search to which a person gave words; whether
the plan was made again because the sources did not suffice; whether a person confirms the first
plan; what persons have added, oldest first.
"""
Kind = Literal["plan", "step", "question", "interrupted"]
Action = Literal["proceed", "modify", "cancel", "input", "retry", "skip"]
OPTIONS: dict[Kind, dict[str, list[Action]]] = {
    "plan": {"confirm": ["proceed", "modify", "cancel"]},
    "step": {
        "confirm": ["proceed", "modify", "cancel"],
        "escalate": ["input", "proceed", "modify", "retry", "skip", "cancel"],
    },
    "question": {"escalate": ["input", "skip", "cancel"]},
    "interrupted": {"escalate": ["retry", "skip", "cancel"]},
}
NEEDS_INPUT = frozenset({"modify", "input"})
MAX_MESSAGE_LENGTH = 4_000


@dataclass(frozen=True)
class PersonQuestion:
    """What a person is asked."""

    kind: Kind
    level: Literal["confirm", "escalate"]
    message: str
    step_id: int | None = None


async def enqueue_leg(
    runtime: Runtime, session: AsyncSession, agent_run: AgentRunRow, delay: timedelta | None = None
) -> None:
    """Queue a run that goes on with an agent run, now or later. Earlier ones stop."""
    run = new_run(
        session,
        AGENT,
        project_id=agent_run.project_id,
        input={"agent_run_id": str(agent_run.id)},
        max_attempts=runtime.settings.max_attempts,
    )
    agent_run.active_run_id = run.id
    await session.flush()
    await runtime.queue.enqueue(session, [Ticket(run.tenant_id, run.id)], after=delay)


async def ask_person(
    runtime: Runtime,
    session: AsyncSession,
    agent_run: AgentRunRow,
    question: PersonQuestion,
    config: GraceConfig,
) -> None:
    """Let a locked agent run wait for a person. The timeout, if there is one, starts now."""
    seconds = config.intervention.timeout_seconds
    options = OPTIONS[question.kind][question.level]
    proceeds = config.intervention.auto_proceed_on_timeout and "proceed" in options
    expires_at = datetime.now(UTC) + timedelta(seconds=seconds) if seconds else None
    row = InterventionRow(
        tenant_id=current_tenant_id(session),
        id=new_id(),
        agent_run_id=agent_run.id,
        kind=question.kind,
        level=question.level,
        step_id=question.step_id,
        message=question.message[:MAX_MESSAGE_LENGTH],
        options=list(options),
        default_action="proceed" if proceeds else "cancel",
        expires_at=expires_at,
    )
    session.add(row)
    agent_run.state, agent_run.active_run_id = "waiting", None
    agent_run.round_count += row.kind != "question"  # the plan's own questions are not doubts
    await queries.add_events(
        session,
        agent_run,
        [("intervention_requested", {"intervention_id": str(row.id), "kind": row.kind,
                                     "level": row.level, "step_id": row.step_id,
                                     "message": row.message, "options": options})],
    )  # fmt: skip
    asked = {"agent_run_id": str(agent_run.id), "intervention_id": str(row.id)}
    data = {**asked, "level": row.level, "message": row.message, "options": options}
    add_event(session, WebhookEvent("intervention.requested", agent_run.project_id, data))
    if seconds:
        await enqueue_leg(runtime, session, agent_run, timedelta(seconds=seconds))
        agent_run.state = "waiting"


def check_answer(row: InterventionRow, action: str, given: str | None) -> None:
    """Raises `Conflict` for one that is not open and `InvalidRequest` for a wrong action."""
    if row.state != "open":
        raise Conflict(f"This intervention is {row.state}.")
    if action not in row.options:
        raise InvalidRequest(f"`action` must be one of: {', '.join(row.options)}.", field="action")
    if action in NEEDS_INPUT and not (given or "").strip():
        raise InvalidRequest(f"`input` is needed for the action '{action}'.", field="input")


async def apply_answer(
    session: AsyncSession,
    agent_run: AgentRunRow,
    row: InterventionRow,
    action: str,
    given: str | None,
    *,
    actor: str | None,
) -> None:
    """Record an answer and carry out what it changes. The agent run is locked. It goes on with the
    next leg, or is cancelled.
    """
    row.state = "answered" if actor is not None else "expired"
    row.action, row.input, row.actor = action, given, actor
    row.answered_at = datetime.now(UTC)
    await queries.add_events(
        session,
        agent_run,
        [("intervention_answered", {"intervention_id": str(row.id), "action": action,
                                    "timed_out": actor is None})],
    )  # fmt: skip
    agent_run.state = "queued"
    if action in NEEDS_INPUT and given:
        said = [*agent_run.options.get(PERSON_INPUTS, ()), given]
        agent_run.options = agent_run.options | {PERSON_INPUTS: said}
        agent_run.options.pop(SEARCHED_AGAIN, None)
    if action == "cancel":
        agent_run.cancel_requested = True
        if actor is None:
            agent_run.options = agent_run.options | {CANCEL_REASON: "Nobody answered in time."}
    elif row.kind == "plan":
        _answer_plan(agent_run, action, given)
    else:
        steps = await queries.load_steps(session, agent_run)
        step = next(each for each in steps if each.step_id == row.step_id)
        if row.kind == "step" and action in ("proceed", "skip"):
            agent_run.options = agent_run.options | {
                ACCEPTED: [*agent_run.options.get(ACCEPTED, ()), step.step_id]
            }
            _note(agent_run, ACCEPTED, steps, step)
        elif row.kind == "step" and action == "input":
            _note(agent_run, REWORDED, steps, step)
        if action == "skip":
            _skip_step(steps, step)
        elif action != "proceed":
            _answer_step(agent_run, step, row.kind, action, given or "")


def _answer_plan(agent_run: AgentRunRow, action: str, given: str | None) -> None:
    if action == "modify":
        _request_replan(agent_run, "user_feedback", None, given or "")
        return
    assert agent_run.plan is not None
    agent_run.plan = agent_run.plan | {"requires_confirmation": False}


def _note(
    agent_run: AgentRunRow, key: str, steps: Sequence[AgentStepRow], about: AgentStepRow
) -> None:
    """Add the answers that use the result of a step to the list `key` of the options."""
    using = [
        each.step_id for each in steps if PlanStep.model_validate(each.spec).reads(about.step_id)
    ]
    agent_run.options = agent_run.options | {key: [*agent_run.options.get(key, ()), *using]}


def _skip_step(steps: Sequence[AgentStepRow], skipped: AgentStepRow) -> None:
    """The other steps go on without this one."""
    _set_result(skipped, PlanStepResult(step_id=skipped.step_id, status="skipped",
                                        action=skipped.spec["action"]))  # fmt: skip
    for step in steps:
        if step.state == "pending":
            spec = PlanStep.model_validate(step.spec).without(skipped.step_id)
            step.spec = spec.model_dump(mode="json")


def _answer_step(
    agent_run: AgentRunRow, step: AgentStepRow, kind: str, action: str, given: str
) -> None:
    if action == "retry":
        step.state, step.result, step.confidence = "pending", None, None
    elif action == "modify":
        _request_replan(agent_run, "user_feedback", step.step_id, given)
    elif kind == "question":
        _set_result(step, PlanStepResult(step_id=step.step_id, status="success", output=given,
                                         confidence=1.0, action=step.spec["action"]))  # fmt: skip
    elif step.spec["action"] in SEARCH_ACTIONS and not FEEDBACK_WORDS.search(given):
        # More precise words: the search is repeated with them.
        step.spec = step.spec | {"query": given[:4_000]}
        step.state, step.result, step.confidence = "pending", None, None
    else:
        _request_replan(agent_run, "new_information", step.step_id, given)


def _set_result(step: AgentStepRow, result: PlanStepResult) -> None:
    step.state, step.result = result.status, result.model_dump()
    step.confidence, step.finished_at = result.confidence, datetime.now(UTC)


def _request_replan(
    agent_run: AgentRunRow, trigger: str, step_id: int | None, feedback: str
) -> None:
    pending: dict[str, Any] = {"trigger": trigger, "step_id": step_id, "feedback": feedback}
    agent_run.options = agent_run.options | {PENDING_REPLAN: pending}


def describe_doubt(step: PlanStep, result: PlanStepResult) -> str:
    """The question to a person about a step of low confidence."""
    sources: Sequence[dict[str, Any]] = result.sources
    first = f"Best source: {sources[0].get('title') or sources[0]['source']}." if sources else ""
    if result.level == "confirm":
        question = "Go on with this result?"
    elif step.action in SEARCH_ACTIONS:
        question = "Ask with other words, or say how to go on."
    else:
        question = "Say what is missing, or how to go on."
    what = result.output[:500] if step.action not in SEARCH_ACTIONS else ""
    # Rounded down, so that it is not shown as the threshold that it is below.
    confidence = math.floor(100 * result.confidence) / 100
    doubt = f"has a confidence of {confidence:.2f}" if result.found else "found no answer"
    parts = [
        f"Step {step.step_id} ({step.action}) {doubt}.",
        what,
        first,
        question,
    ]
    return " ".join(part for part in parts if part)
