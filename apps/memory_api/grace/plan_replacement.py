"""Replaces the plan of an agent run, or repeats an answer of it, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.grace import queries
from memory_api.grace.interventions import ACCEPTED, PENDING_REPLAN, REWORDED
from memory_api.grace.leg import Leg, describe_plan, write_plan
from memory_api.grace.plan_questions import asks_about_plans
from memory_api.grace.replanning import ReplanContext, ReplanResult
from memory_api.grace.tables import AgentRunRow


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
            await _give_up(session, current)
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


async def _give_up(session: AsyncSession, agent_run: AgentRunRow) -> None:
    """Skip the steps that are left."""
    for row in await queries.load_steps(session, agent_run):
        if row.state in ("pending", "running"):
            row.state, row.finished_at = "skipped", datetime.now(UTC)
