"""Asks a person about a step or about the whole plan."""

from __future__ import annotations

from typing import Any

from memory_api.grace.execution_plan import SEARCH_ACTIONS, ExecutionPlan, PlanStep
from memory_api.grace.interventions import (
    CONFIRM_PLAN,
    PENDING_QUESTION,
    PersonQuestion,
    ask_person,
)
from memory_api.grace.leg import Leg
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
