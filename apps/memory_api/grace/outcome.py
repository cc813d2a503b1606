"""The end of an agent run: its result, and the trace that Hansei learns from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.grace import queries
from memory_api.grace.confidence import calibrate
from memory_api.grace.config import GraceConfig
from memory_api.grace.context import CONVERSATION, EarlierAnswer
from memory_api.grace.execution_plan import (
    ANSWER_ACTIONS,
    USABLE,
    ExecutionPlan,
    ExecutionResult,
    PlanStepResult,
)
from memory_api.grace.tables import CANCEL_REASON, AgentRunRow, AgentStepRow
from memory_api.runs.chain import enqueue_learning_runs
from memory_api.runtime import Runtime
from memory_api.traces.schemas import CreateTraceRequest
from memory_api.traces.storage import prepare_trace, store_new_trace

OUTCOMES = {"failed": "failure", "partial": "partial"}
"""Status of a run → outcome of its trace. A success is one if the run was sure enough to go on
silently; otherwise it has no outcome until a person gives feedback.
"""
MAX_EVENT_LENGTH = 20_000
NO_ANSWER: dict[str, Any] = {
    "final_answer": None,
    "sources": [],
    "found": False,
    "overall_confidence": 0.0,
    "calibrated_confidence": 0.0,
}
"""The part of a cancelled run's result that is about its answer, whatever steps have answered."""


async def finish_agent_run(
    runtime: Runtime,
    session: AsyncSession,
    agent_run: AgentRunRow,
    config: GraceConfig,
    *,
    status: str | None = None,
    error: str | None = None,
    temperature: float = 1.0,
    silent_from: float | None = None,
    steps: Sequence[AgentStepRow] | None = None,
    events: Sequence[queries.AgentEventData] = (),
) -> ExecutionResult | None:
    """End a locked agent run. Returns None if it ended before it had a plan. `silent_from` is the
    threshold from which a success counts without feedback; None: never. `steps` are the rows of
    the plan, if they are known, and `events` what happened before the end.
    """
    if steps is None:
        steps = await queries.load_steps(session, agent_run) if agent_run.plan else ()
    result = None
    if agent_run.plan is not None:
        result = combine_results(agent_run, steps, temperature)
        if status == "cancelled":
            error = error or agent_run.options.get(CANCEL_REASON)
            result = result.model_copy(update={"overall_status": "cancelled", **NO_ANSWER})
        elif error is not None and result.final_answer is None:
            result = result.model_copy(update={"overall_status": "failed"})
        agent_run.result = result.model_dump(mode="json")
    skip_open_steps(steps)
    if error is None and result is not None and result.overall_status == "failed":
        error = describe_failure(result)
    agent_run.error = {"message": error[:2_000]} if error else None
    overall = result.overall_status if result else status or "failed"
    agent_run.state = {"cancelled": "cancelled", "failed": "failed"}.get(overall, "done")
    agent_run.finished_at = agent_run.updated_at = datetime.now(UTC)
    agent_run.active_run_id = None
    if result is not None and steps and overall != "cancelled":
        outcome = OUTCOMES.get(overall)
        sure = silent_from is not None and result.calibrated_confidence >= silent_from
        if overall == "success" and sure:
            outcome = "success"
        await _store_trace(runtime, session, agent_run, result, steps, outcome)
    data = {
        "state": agent_run.state,
        "final_answer": result.final_answer if result else None,
        "confidence": result.calibrated_confidence if result else 0.0,
        "found": result.found if result else False,
        "status": overall,
        "error": error,
    }
    await queries.add_events(session, agent_run, [*events, ("run_finished", data)])
    return result


def describe_failure(result: ExecutionResult) -> str:
    """Why a run has no answer: the first step that failed."""
    failed = (each for each in result.step_results if each.status == "failed" and each.error)
    first = next(failed, None)
    if first is None:
        return "The step that answers the question was left out, or gave no answer."
    return f"Step {first.step_id} ({first.action}) failed: {first.error}"


def skip_open_steps(steps: Sequence[AgentStepRow]) -> None:
    """Skip the steps that are left."""
    for row in steps:
        if row.state in ("pending", "running"):
            row.state, row.finished_at = "skipped", datetime.now(UTC)


def combine_results(
    agent_run: AgentRunRow, steps: Sequence[AgentStepRow], temperature: float
) -> ExecutionResult:
    """The answer of the plan's last answering step, and its confidence. One that another step reads
    is a part of the answer, and does not answer the question.
    """
    plan = ExecutionPlan.model_validate(agent_run.plan)
    results = [PlanStepResult.model_validate(row.result) for row in steps if row.result]
    usable = [each for each in results if each.status in USABLE]
    answering = [step for step in plan.steps if step.action in ANSWER_ACTIONS]
    whole = [s.step_id for s in answering if not any(o.reads(s.step_id) for o in answering)]
    last = max(whole, default=None)
    final = next((each for each in usable if each.step_id == last), None)
    confidence = final.confidence if final else 0.0  # the answer's own, whatever was found
    if final is None or not usable:
        overall = "failed"
    elif len(usable) == len(steps) and final.found and final.status == "success":
        overall = "success"
    else:
        overall = "partial"
    started = agent_run.started_at or agent_run.created_at
    return ExecutionResult(
        plan_id=plan.plan_id,
        original_query=agent_run.query,
        final_answer=final.output if final else None,
        step_results=results,
        overall_confidence=confidence,
        calibrated_confidence=round(calibrate(confidence, temperature), 3),
        overall_status=overall,
        found=final.found if final else False,
        sources=final.sources if final else [],
        replan_count=agent_run.replan_count,
        total_execution_time_ms=int((datetime.now(UTC) - started).total_seconds() * 1_000),
        total_token_usage=agent_run.token_count,
        total_cost_usd=agent_run.known_cost_usd,
    )


async def _store_trace(
    runtime: Runtime,
    session: AsyncSession,
    agent_run: AgentRunRow,
    result: ExecutionResult,
    steps: Sequence[AgentStepRow],
    outcome: str | None,
) -> None:
    """Store the run as a trace of its playbook. One with an outcome is learned from now, one
    without once a person says whether the answer was right.
    """
    plan = ExecutionPlan.model_validate(agent_run.plan)
    conversation: list[EarlierAnswer] = agent_run.options.get(CONVERSATION, [])
    asked = "\n".join([*(each["question"] for each in conversation), agent_run.query])
    body = CreateTraceRequest.model_validate(
        {
            "external_id": f"agent-run:{agent_run.id}",
            "task_key": f"question:{hashlib.sha256(asked.encode()).hexdigest()}",
            "playbook": agent_run.playbook,
            "task_description": agent_run.query,
            "query": agent_run.query,
            "generated_answer": result.final_answer,
            "outcome": outcome,
            "reasoning_steps": [step.description for step in plan.steps],
            "used_bullet_keys": plan.cited_bullet_keys,
            "retrieval_id": agent_run.retrieval_id,
            "tools": [{"name": name} for name in sorted({s.action for s in plan.steps})],
            "metadata": {"agent_run_id": str(agent_run.id)},
            "events": _to_events(agent_run.query, steps, result),
        }
    )
    # The outputs are limited and redacted already, so this takes milliseconds.
    new = await prepare_trace(body, agent_run.tenant_id, agent_run.project_id)
    trace_id = agent_run.trace_id = await store_new_trace(session, new)
    if body.outcome is not None and runtime.settings.reflective_memory_enabled:
        await session.flush()
        await enqueue_learning_runs(
            runtime.queue,
            session,
            {trace_id: agent_run.project_id},
            reflect="auto",
            max_attempts=runtime.settings.max_attempts,
        )


def _to_events(
    query: str, steps: Sequence[AgentStepRow], result: ExecutionResult
) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"event_type": "user_message", "content": query}]
    for row in steps:
        if row.result is None:
            continue
        arguments = {"query": row.spec.get("query"), "collection": row.spec.get("collection")}
        name, outcome = row.spec["action"], PlanStepResult.model_validate(row.result)
        call = json.dumps({k: v for k, v in arguments.items() if v}, ensure_ascii=False)
        events.append({"event_type": "tool_call", "tool_name": name, "content": call})
        failed = outcome.status == "failed"
        events.append(
            {
                "event_type": "error_event" if failed else "tool_response",
                "tool_name": name,
                "content": (outcome.error or "" if failed else outcome.output)[:MAX_EVENT_LENGTH],
                "metadata": {"confidence": outcome.confidence, "found": outcome.found},
            }
        )
    if result.final_answer is not None:
        events.append({"event_type": "llm_response", "content": result.final_answer})
    return events
