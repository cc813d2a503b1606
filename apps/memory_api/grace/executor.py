"""Executes the steps of a plan: in dependency order, up to four at a time, each with a timeout.

The transaction that stores a result also stores its events, what they decide (a question to a
person, a replan), and that the next steps are running or the agent run has ended. So a worker that
is killed never repeats a finished step, and a step costs one transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import structlog
from pydantic import ValidationError

from memory_api.core.db_errors import DatabaseUnavailable
from memory_api.core.secret_redaction import redact
from memory_api.grace import queries
from memory_api.grace.agent_model import RunOverLimit
from memory_api.grace.confidence import (
    CONTRADICTION,
    ConfidenceScore,
    calibrate,
    decide,
    score_grounded,
    score_step,
)
from memory_api.grace.config import GraceConfig
from memory_api.grace.context import CONVERSATION
from memory_api.grace.decisions import (
    budget_warning,
    decide_next,
    search_again,
    search_web,
)
from memory_api.grace.execution_plan import (
    ANSWER_ACTIONS,
    USABLE,
    ExecutionState,
    PlanStep,
    PlanStepResult,
)
from memory_api.grace.interventions import (
    PENDING_QUESTION,
    PENDING_REPLAN,
    PERSON_INPUTS,
    PersonQuestion,
    ask_person,
)
from memory_api.grace.leg import KnownRows, Leg, read_state
from memory_api.grace.tables import AgentRunRow, AgentStepRow
from memory_api.grace.tools.port import Tool, ToolContext, ToolFailed, ToolResult
from memory_api.llm.errors import LLMError, LLMOverBudget
from memory_api.runs.lifecycle import LeaseLost

log = structlog.get_logger()

CANCEL_POLL_SECONDS = 1.0
MAX_OUTPUT_LENGTH = 40_000


class AgentRunCancelled(Exception):
    """A person has cancelled the run while a tool was working."""


async def run_ready_steps(leg: Leg, agent_run: AgentRunRow, state: ExecutionState) -> None:
    """Run the steps that are marked as running. If there are none, skip those with a failed
    dependency, or run those that are ready, at most `max_parallel`. Stores their results. Raises
    `AgentRunCancelled`.
    """
    started, leg.started = leg.started, ()
    if started:
        await _with_cancellation(leg, [_run_step(leg, agent_run, state, step) for step in started])
        return
    unmet = state.unmet()
    if unmet:
        await _skip_steps(leg, unmet)
        return
    ready = state.ready()[: leg.config.executor.max_parallel]
    interrupted = [s for s in ready if state.states[s.step_id] == "running"
                   and not _tool_of(leg, s).idempotent]  # fmt: skip
    questions = [step for step in ready if step.action == "ask_user"]
    if interrupted or questions:
        await _ask_about_step(leg, (interrupted or questions)[0], bool(interrupted))
        return
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        current = await leg.lock(session)
        if current.cancel_requested:
            raise AgentRunCancelled
        rows = await queries.load_steps(session, current)
        await queries.add_events(session, current, mark_running(rows, ready))
    leg.known = KnownRows(current, rows)
    await _with_cancellation(leg, [_run_step(leg, current, state, step) for step in ready])


def mark_running(
    rows: Sequence[AgentStepRow], steps: Sequence[PlanStep]
) -> list[queries.AgentEventData]:
    """Mark these steps as running. Returns the events of their start."""
    by_id, now = {row.step_id: row for row in rows}, datetime.now(UTC)
    for step in steps:
        row = by_id[step.step_id]
        row.state, row.attempt_count, row.started_at = "running", row.attempt_count + 1, now
    return [
        ("step_started", {"step_id": s.step_id, "action": s.action, "description": s.description})
        for s in steps
    ]


def find_next_steps(
    leg: Leg, agent_run: AgentRunRow, state: ExecutionState
) -> list[PlanStep] | None:
    """The steps that can start in this transaction, none if the plan is finished. None if something
    else comes first: a person, a replan, a step to skip, or the other steps of this wave.
    """
    pending = {PENDING_REPLAN, PENDING_QUESTION} & agent_run.options.keys()
    if agent_run.cancel_requested or pending or state.plan.requires_confirmation or state.unmet():
        return None
    ready = state.ready()[: leg.config.executor.max_parallel]
    if any(step.action == "ask_user" for step in ready) or "running" in state.states.values():
        return None
    return ready


def _tool_of(leg: Leg, step: PlanStep) -> Tool:
    return leg.tools[step.action]


async def _skip_steps(leg: Leg, steps: Sequence[PlanStep]) -> None:
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        agent_run = await leg.lock(session)
        rows = {row.step_id: row for row in await queries.load_steps(session, agent_run)}
        for step in steps:
            result = PlanStepResult(
                step_id=step.step_id,
                status="skipped",
                action=step.action,
                error="A step that it depends on has no result.",
            )
            _write(rows[step.step_id], step, result)
        events = [("step_skipped", {"step_id": step.step_id}) for step in steps]
        await queries.add_events(session, agent_run, events)


async def _ask_about_step(leg: Leg, step: PlanStep, was_interrupted: bool) -> None:
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        agent_run = await leg.lock(session)
        if was_interrupted:
            message = (
                f"Step {step.step_id} ({step.action}) was cut off, and it is unknown whether it has"
                " taken effect. Try it again?"
            )
            question = PersonQuestion("interrupted", "escalate", message, step.step_id)
        else:
            message = step.query or step.description
            question = PersonQuestion("question", "escalate", message, step.step_id)
        await ask_person(leg.runtime, session, agent_run, question, leg.config)


async def _with_cancellation(leg: Leg, work: Sequence[Any]) -> None:
    """Run coroutines at the same time until all are done or a person cancels the run."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        while True:
            done, pending = await asyncio.wait(tasks, timeout=CANCEL_POLL_SECONDS)
            for task in done:
                task.result()
            if not pending:
                return
            if await _is_cancel_requested(leg) and not leg.has_ended:
                raise AgentRunCancelled
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _is_cancel_requested(leg: Leg) -> bool:
    """Without a database, the next look finds out: what a model or tool is working on goes on."""
    try:
        async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
            return await queries.get_cancel_requested(session, leg.agent_run_id)
    except DatabaseUnavailable as error:
        log.warning("cancel_check_failed", error=str(error))
        return False


async def _run_step(
    leg: Leg, agent_run: AgentRunRow, state: ExecutionState, step: PlanStep
) -> None:
    started = time.monotonic()
    known = {n: each for n, each in sorted(state.results.items()) if each.status in USABLE}
    step = step.fill_query(known)
    needed = {n: known[n] for n in step.depends_on if n in known}
    context = ToolContext(
        leg.runtime,
        leg.config,
        leg.run.tenant_id,
        agent_run.project_id,
        agent_run.query,
        agent_run.collections,
        needed | known,  # what the plan names comes first
        leg.model,
        leg.bullets,
        leg.tools,
        leg.corrections,
        agent_run.options.get(CONVERSATION, ()),
        agent_run.options.get(PERSON_INPUTS, ()),
        {each.step_id: each.query or each.description for each in state.plan.steps},
        any(each.reads(step.step_id) for each in state.plan.steps),
    )
    timed_out = False
    timeout = step.timeout_seconds or leg.config.executor.step_timeout_seconds
    try:
        tool = _tool_of(leg, step)
        given = tool.parse_input(step, agent_run.query)
        async with asyncio.timeout(timeout):
            result = await tool.run(context, given)
    except TimeoutError:
        timed_out = True
        result = ToolResult("", "failed", error=f"The step took longer than {timeout:g} seconds.")
    except (LLMOverBudget, RunOverLimit):
        raise
    except LLMError as error:
        if error.is_outage:
            raise  # the leg is postponed; the step runs again
        result = ToolResult("", "failed", error=str(error)[:2_000])
    except ValidationError as error:
        result = ToolResult("", "failed", error=f"The input of the step is not valid: {error}")
    except ToolFailed as error:
        result = ToolResult("", "failed", error=str(error)[:2_000])
    except (LeaseLost, asyncio.CancelledError):
        raise
    except Exception as error:  # a tool of the operator may raise anything
        name = type(error).__name__
        log.exception("tool_failed", tool=step.action)
        result = ToolResult("", "failed", error=f"The tool failed unexpectedly ({name}).")
    milliseconds = int((time.monotonic() - started) * 1_000)
    found = _to_step_result(leg, step, result, milliseconds)
    await _store_result(leg, step, found, timed_out=timed_out, next_search=result.next_search)


def _to_step_result(
    leg: Leg,
    step: PlanStep,
    result: ToolResult,
    milliseconds: int,
) -> PlanStepResult:
    score = score_result(leg.config, result)
    own = calibrate(score.score, leg.temperature) if leg.temperature != 1 else score.score
    level = decide(own, leg.thresholds).level
    is_answer = step.action in ANSWER_ACTIONS
    if CONTRADICTION in score.penalties or (is_answer and not result.found):
        level = "escalate"  # however sure the search is
    elif level == "silent" and not result.is_checked:
        level = "notify"
    return PlanStepResult(
        step_id=step.step_id,
        status=result.status,
        output=redact(result.output[:MAX_OUTPUT_LENGTH]).text,
        confidence=score.score,
        sources=[source.to_json() for source in result.sources],
        error=redact(result.error).text if result.error else None,
        breakdown=score.breakdown,
        penalties=list(score.penalties),
        level=level,
        action=step.action,
        found=result.found,
        execution_time_ms=milliseconds,
    )


def score_result(config: GraceConfig, result: ToolResult) -> ConfidenceScore:
    """The confidence in the result of a tool. An answer whose claims were compared with its sources
    is scored by them and by the best score of the passages that it cites.
    """
    if result.status == "failed":
        return ConfidenceScore(0.0, {}, ("failed",))
    if result.grounded is None:
        return score_step(result.factors, config)
    searched = max((source.score for source in result.sources), default=0.0)
    return score_grounded(result.grounded, searched, len(result.sources))


async def _store_result(
    leg: Leg, step: PlanStep, result: PlanStepResult, *, timed_out: bool, next_search: str
) -> None:
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        agent_run = await leg.lock(session)
        rows = await queries.load_steps(session, agent_run)
        row = next(each for each in rows if each.step_id == step.step_id)
        _write(row, step, result)
        events = [_result_event(step, result), *budget_warning(leg, agent_run)]
        inserted = search_web(leg, rows, step, result) or search_again(
            leg, agent_run, rows, step, result, next_search
        )
        if inserted is not None:
            session.add(inserted)
            spec = inserted.spec
            events.append(
                (
                    "step_inserted",
                    {name: spec[name] for name in ("step_id", "action", "description")},
                )
            )
            await queries.add_events(session, agent_run, events)
            return
        decide_next(leg, agent_run, rows, step, result, timed_out)
        following = find_next_steps(leg, agent_run, read_state(agent_run, rows))
        if following == [] and _tool_of(leg, step).idempotent:
            await leg.end(session, agent_run, steps=rows, events=events)
            return
        events.extend(mark_running(rows, following or ()))
        await queries.add_events(session, agent_run, events)
    leg.known, leg.started = KnownRows(agent_run, rows), following or ()


def _result_event(step: PlanStep, result: PlanStepResult) -> queries.AgentEventData:
    kind = "step_failed" if result.status == "failed" else "step_finished"
    return kind, {
        "step_id": step.step_id,
        "action": step.action,
        "status": result.status,
        "confidence": result.confidence,
        "level": result.level,
        "found": result.found,
        "error": result.error,
        "sources": [each["source"] for each in result.sources],
    }


def _write(row: AgentStepRow, step: PlanStep, result: PlanStepResult) -> None:
    row.spec = row.spec | {"query": step.query}  # with the outputs of earlier steps
    row.state, row.result = result.status, result.model_dump()
    row.confidence, row.finished_at = result.confidence, datetime.now(UTC)
