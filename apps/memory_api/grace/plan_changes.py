"""Changes of the plan of an agent run, each in one transaction: asks a person about the plan or a
step, replaces the plan, or lets a step answer again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from memory_api.grace import queries
from memory_api.grace.execution_plan import SEARCH_ACTIONS, ExecutionPlan, PlanStep
from memory_api.grace.interventions import (
    ACCEPTED,
    CONFIRM_PLAN,
    PENDING_QUESTION,
    PENDING_REPLAN,
    REWORDED,
    PersonQuestion,
    ask_person,
)
from memory_api.grace.leg import Leg, describe_plan, write_plan
from memory_api.grace.outcome import skip_open_steps
from memory_api.grace.replanning import ReplanContext, ReplanResult
from memory_api.grace.tables import AgentRunRow


def asks_about_plans(leg: Leg, agent_run: AgentRunRow) -> bool:
    if CONFIRM_PLAN in agent_run.options and agent_run.plan_number == 1:
        return True
    interactive = agent_run.options.get("interactive", leg.config.intervention.interactive)
    return bool(interactive) and agent_run.round_count < leg.config.intervention.max_rounds


async def ask_pending(leg: Leg) -> bool:
    """Ask about a step or about the plan; go on without an answer if no round is left."""
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        current = await leg.lock(session)
        pending: dict[str, Any] | None = current.options.get(PENDING_QUESTION)
        if pending is not None:
            current.options = {k: v for k, v in current.options.items() if k != PENDING_QUESTION}
            question = PersonQuestion(
                "step", pending["level"], pending["message"], pending["step_id"]
            )
        else:
            plan = ExecutionPlan.model_validate(current.plan)
            if not asks_about_plans(leg, current):
                current.plan = plan.model_copy(update={"requires_confirmation": False}).model_dump(
                    mode="json"
                )
                return True
            steps = "; ".join(
                f"{s.step_id}. {s.action}: {s.description}"
                + (f" (search: {s.query})" if _hides_words(s) else "")
                for s in plan.steps
            )
            question = PersonQuestion("plan", "confirm", f"Carry out this plan? {steps}")
        await ask_person(leg.runtime, session, current, question, leg.config)
    return False


def _hides_words(step: PlanStep) -> bool:
    """Whether the description of a search does not have its words; a model's description does."""
    return step.action in SEARCH_ACTIONS and bool(step.query) and step.query != step.description


async def answer_again(leg: Leg, why: ReplanContext) -> bool:
    """Let the step that a person has added to answer again."""
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        current = await leg.lock(session)
        current.options = {k: v for k, v in current.options.items() if k != PENDING_REPLAN}
        rows = await queries.load_steps(session, current)
        row = next(each for each in rows if each.step_id == why.step_id)
        row.state, row.result, row.confidence = "pending", None, None
    return True


async def save_replan(leg: Leg, why: ReplanContext, result: ReplanResult) -> None:
    """Store a new plan; without one, go on with what was found, or skip what is left."""
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        current = await leg.lock(session)
        current.options = {k: v for k, v in current.options.items() if k != PENDING_REPLAN}
        event = {"trigger": why.trigger, "strategy": result.strategy, "step_id": why.step_id,
                 "error": why.error}  # fmt: skip
        if result.plan is None:
            await queries.add_events(session, current, [("replan_aborted", event)])
            if why.trigger in ("low_confidence",):
                return  # the plan goes on with what the search has found
            skip_open_steps(await queries.load_steps(session, current))
            return
        rows = await queries.load_steps(session, current)
        kept = [row for row in rows if row.step_id in result.kept]
        current.options = _drop_numbers(current.options, result.kept)
        current.replan_count += 1
        current.replanned_at = datetime.now(UTC)
        plan = result.plan
        if plan.requires_confirmation and not asks_about_plans(leg, current):
            plan = plan.model_copy(update={"requires_confirmation": False})
        session.add_all(write_plan(current, plan, kept))
        await queries.add_events(
            session, current, [("replanned", event), ("plan_created", describe_plan(plan))]
        )


def _drop_numbers(options: dict[str, Any], kept: Sequence[int]) -> dict[str, Any]:
    """The options without the numbers of steps that are not kept: new steps have them now."""
    return options | {
        key: [number for number in options.get(key, ()) if number in kept]
        for key in (ACCEPTED, REWORDED)
    }
