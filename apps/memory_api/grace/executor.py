"""Executes the steps of a plan: in dependency order, up to four at a time, each with a timeout.

A step is marked as running in one transaction; its result, events and what they decide (a question
to a person, a replan) are stored in another. So a worker that is killed never repeats a finished
step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.secret_redaction import redact
from apps.memory_api.grace import queries
from apps.memory_api.grace.agent_model import AgentModel, RunOverLimit, RunUsage
from apps.memory_api.grace.confidence import (
    ConfidenceScore,
    calibrate,
    decide,
    score_grounded,
    score_step,
)
from apps.memory_api.grace.config import GraceConfig, ThresholdSection
from apps.memory_api.grace.execution_plan import (
    SEARCH_ACTIONS,
    ExecutionPlan,
    ExecutionState,
    PlanStep,
    PlanStepResult,
)
from apps.memory_api.grace.interventions import (
    ACCEPTED,
    PENDING_QUESTION,
    PENDING_REPLAN,
    PersonQuestion,
    ask_person,
    describe_doubt,
)
from apps.memory_api.grace.tables import AgentRunRow, AgentStepRow
from apps.memory_api.grace.tools.port import Tool, ToolContext, ToolFailed, ToolResult
from apps.memory_api.llm.errors import LLMError, LLMOverBudget
from apps.memory_api.runs.lifecycle import LeaseLost, extend_lease
from apps.memory_api.runs.tables import RunRow
from apps.memory_api.runtime import Runtime

CANCEL_POLL_SECONDS = 1.0
MAX_OUTPUT_LENGTH = 40_000


class AgentRunCancelled(Exception):
    """A person has cancelled the run while a tool was working."""


@dataclass
class Leg:
    """What one `run` of the kind `agent` works with."""

    runtime: Runtime
    run: RunRow
    agent_run_id: UUID
    config: GraceConfig
    tools: Mapping[str, Tool]
    thresholds: ThresholdSection
    temperature: float
    model: AgentModel | None = None
    bullets: str = ""
    bullet_keys: Sequence[str] = field(default_factory=tuple[str, ...])

    async def lock(self, session: AsyncSession) -> AgentRunRow:
        """The agent run, locked. Raises `LeaseLost` if another run or worker has it."""
        agent_run = await queries.get_agent_run(session, self.agent_run_id, for_update=True)
        if agent_run is None or agent_run.active_run_id != self.run.id:
            raise LeaseLost
        if not await extend_lease(session, self.run, self.runtime.lease_duration):
            raise LeaseLost
        if self.model is not None:
            used: RunUsage = self.model.usage
            agent_run.token_count, agent_run.cost_usd = used.tokens, used.cost_usd
        return agent_run


def read_state(agent_run: AgentRunRow, steps: Sequence[AgentStepRow]) -> ExecutionState:
    """The state of a run from its rows."""
    plan = ExecutionPlan.model_validate(agent_run.plan)
    current = [PlanStep.model_validate(row.spec) for row in steps]
    state = ExecutionState(plan.model_copy(update={"steps": current}))
    for row in steps:
        state.states[row.step_id] = row.state  # pyright: ignore[reportArgumentType]
        state.started[row.step_id] = row.attempt_count
        if row.result is not None:
            state.results[row.step_id] = PlanStepResult.model_validate(row.result)
    return state


async def run_ready_steps(leg: Leg, agent_run: AgentRunRow, state: ExecutionState) -> None:
    """Skip the steps with a failed dependency, or run those that are ready, at most `max_parallel`.
    Stores their results. Raises `AgentRunCancelled`.
    """
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
        await queries.mark_steps_running(session, current, [step.step_id for step in ready])
        await queries.add_events(
            session,
            current,
            [("step_started", {"step_id": s.step_id, "action": s.action,
                               "description": s.description}) for s in ready],
        )  # fmt: skip
    await _with_cancellation(leg, [_run_step(leg, agent_run, state, step) for step in ready])


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
            _write(rows[step.step_id], result)
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
            async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
                if await queries.get_cancel_requested(session, leg.agent_run_id):
                    raise AgentRunCancelled
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run_step(
    leg: Leg, agent_run: AgentRunRow, state: ExecutionState, step: PlanStep
) -> None:
    started = time.monotonic()
    inputs = step.depends_on or [n for n in state.results if n < step.step_id]
    outputs = {n: state.results[n] for n in inputs if n in state.results}
    context = ToolContext(
        leg.runtime,
        leg.config,
        leg.run.tenant_id,
        agent_run.project_id,
        agent_run.query,
        agent_run.collections,
        outputs,
        leg.model,
        leg.bullets,
        leg.tools,
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
        result = ToolResult("", "failed", error=f"The tool failed unexpectedly ({name}).")
    milliseconds = int((time.monotonic() - started) * 1_000)
    await _store_result(leg, step, _to_step_result(leg, step, result, outputs, milliseconds),
                        timed_out=timed_out)  # fmt: skip


def _to_step_result(
    leg: Leg,
    step: PlanStep,
    result: ToolResult,
    outputs: Mapping[int, PlanStepResult],
    milliseconds: int,
) -> PlanStepResult:
    score = score_result(leg.config, step, result, outputs)
    own = calibrate(score.score, leg.temperature) if leg.temperature != 1 else score.score
    return PlanStepResult(
        step_id=step.step_id,
        status=result.status,
        output=redact(result.output[:MAX_OUTPUT_LENGTH]).text,
        confidence=score.score,
        sources=[source.to_json() for source in result.sources],
        error=redact(result.error).text if result.error else None,
        breakdown=score.breakdown,
        penalties=list(score.penalties),
        level=decide(own, leg.thresholds).level,
        action=step.action,
        found=result.found,
        execution_time_ms=milliseconds,
    )


def score_result(
    config: GraceConfig,
    step: PlanStep,
    result: ToolResult,
    outputs: Mapping[int, PlanStepResult],
) -> ConfidenceScore:
    """The confidence in the result of a tool. An answer whose claims were compared with its sources
    is scored by them; one without sources inherits the best dependency's confidence as its search
    score.
    """
    if result.status == "failed":
        return ConfidenceScore(0.0, {}, ("failed",))
    if result.grounded is None:
        return score_step(result.factors, config)
    searched = [each.confidence for each in outputs.values() if each.action in SEARCH_ACTIONS]
    return score_grounded(result.grounded, max(searched, default=0.0), len(result.sources), config)


async def _store_result(
    leg: Leg, step: PlanStep, result: PlanStepResult, *, timed_out: bool
) -> None:
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        agent_run = await leg.lock(session)
        rows = await queries.load_steps(session, agent_run)
        row = next(each for each in rows if each.step_id == step.step_id)
        _write(row, result)
        kind = "step_failed" if result.status == "failed" else "step_finished"
        data = {
            "step_id": step.step_id,
            "action": step.action,
            "status": result.status,
            "confidence": result.confidence,
            "level": result.level,
            "found": result.found,
            "error": result.error,
            "sources": [each["source"] for each in result.sources],
        }
        await queries.add_events(session, agent_run, [(kind, data)])
        _decide(leg, agent_run, step, result, timed_out)


def _write(row: AgentStepRow, result: PlanStepResult) -> None:
    row.state, row.result = result.status, result.model_dump()
    row.confidence, row.finished_at = result.confidence, datetime.now(UTC)


def _decide(
    leg: Leg, agent_run: AgentRunRow, step: PlanStep, result: PlanStepResult, timed_out: bool
) -> None:
    """Notes what the result leads to: a replan, a question, or nothing. The leg carries it out once
    all steps of this wave have ended.
    """
    if {PENDING_REPLAN, PENDING_QUESTION} & agent_run.options.keys():
        return  # another step of the same wave decided already
    if result.status == "failed":
        _plan_again(agent_run, "timeout" if timed_out else "step_failed", step, result.error or "")
        return
    accepted = bool(agent_run.options.get(ACCEPTED))
    if accepted or result.level not in ("confirm", "escalate"):
        return
    is_search = step.action in SEARCH_ACTIONS
    weak = result.confidence < leg.config.replan.confidence_threshold
    has_another_way = step.fallback is not None or leg.model is not None
    limit = leg.config.executor.max_replans
    if is_search and weak and has_another_way and agent_run.replan_count < limit:
        _plan_again(agent_run, "low_confidence", step, "The search found little that fits.")
        return
    interactive = agent_run.options.get("interactive", leg.config.intervention.interactive)
    rounds_left = agent_run.round_count < leg.config.intervention.max_rounds
    if rounds_left and (interactive or result.level == "escalate"):
        level = "confirm" if result.level == "confirm" else "escalate"
        asked = {"level": level, "message": describe_doubt(step, result), "step_id": step.step_id}
        agent_run.options = agent_run.options | {PENDING_QUESTION: asked}


def _plan_again(agent_run: AgentRunRow, trigger: str, step: PlanStep, error: str) -> None:
    pending = {"trigger": trigger, "step_id": step.step_id, "error": error}
    agent_run.options = agent_run.options | {PENDING_REPLAN: pending}
