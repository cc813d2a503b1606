"""What the result of a step leads to: a replan, a question to a person, a web search, a warning.

The rows are locked by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from memory_api.grace.confidence import CONTRADICTION
from memory_api.grace.execution_plan import (
    ANSWER_ACTIONS,
    MAX_STEPS,
    SEARCH_ACTIONS,
    USABLE,
    PlanStep,
    PlanStepResult,
)
from memory_api.grace.interventions import (
    ACCEPTED,
    PENDING_QUESTION,
    PENDING_REPLAN,
    REWORDED,
    SEARCHED_AGAIN,
    describe_doubt,
)
from memory_api.grace.leg import Leg
from memory_api.grace.tables import COST_UNKNOWN, AgentRunRow, AgentStepRow

log = structlog.get_logger()

WEB_SEARCH = "web_search"
BUDGET_WARNED = "budget_warned"
"""The name in `options` of a run that was warned about its budget."""


def decide_next(
    leg: Leg,
    agent_run: AgentRunRow,
    rows: Sequence[AgentStepRow],
    step: PlanStep,
    result: PlanStepResult,
    timed_out: bool,
) -> None:
    """Notes what the result leads to: a replan, a question, or nothing. The leg carries it out once
    all steps of this wave have ended.
    """
    if {PENDING_REPLAN, PENDING_QUESTION} & agent_run.options.keys():
        return  # another step of the same wave decided already
    if result.status == "failed":
        _plan_again(agent_run, "timeout" if timed_out else "step_failed", step, result.error or "")
        return
    accepted = step.step_id in agent_run.options.get(ACCEPTED, ())
    if leg.model is None and result.found:
        # The rules cannot do better with the words that the person gave to the search.
        accepted = accepted or step.step_id in agent_run.options.get(REWORDED, ())
    if accepted and CONTRADICTION not in result.penalties:
        return
    if result.level not in ("confirm", "escalate"):
        return
    is_read_later = _is_read_later(leg, rows, step, result)
    is_search = step.action in SEARCH_ACTIONS
    weak = result.confidence < leg.config.replan.confidence_threshold
    has_another_way = step.fallback is not None or (leg.model is not None and not is_read_later)
    limit = leg.config.executor.max_replans
    if is_search and weak and has_another_way and agent_run.replan_count < limit:
        _plan_again(agent_run, "low_confidence", step, "The search found little that fits.")
        return
    if is_read_later:
        return
    interactive = agent_run.options.get("interactive", leg.config.intervention.interactive)
    rounds_left = agent_run.round_count < leg.config.intervention.max_rounds
    if rounds_left and (interactive or result.level == "escalate"):
        level = "confirm" if result.level == "confirm" else "escalate"
        asked = {"level": level, "message": describe_doubt(step, result), "step_id": step.step_id}
        agent_run.options = agent_run.options | {PENDING_QUESTION: asked}


def _is_read_later(
    leg: Leg, rows: Sequence[AgentStepRow], step: PlanStep, result: PlanStepResult
) -> bool:
    """Whether a model reads what this step found. Then it says what is missing (`search_again`),
    and the confidence in its answer decides whether a person is asked.
    """
    if leg.model is None:
        return False
    if step.action in SEARCH_ACTIONS:
        if result.confidence < leg.config.search.ask_back_below:
            return False
    elif step.action not in ANSWER_ACTIONS or not result.found:
        return False
    others = [PlanStep.model_validate(row.spec) for row in rows]
    answers = [each for each in others if each.action in ANSWER_ACTIONS]
    return any(each.reads(step.step_id) for each in answers)


def _plan_again(agent_run: AgentRunRow, trigger: str, step: PlanStep, error: str) -> None:
    pending = {"trigger": trigger, "step_id": step.step_id, "error": error}
    agent_run.options = agent_run.options | {PENDING_REPLAN: pending}


def budget_warning(leg: Leg, agent_run: AgentRunRow) -> list[tuple[str, dict[str, Any]]]:
    """An event when the run has used `warn_cost_share` of its cost or tokens, and one if the price
    of the model is unknown, each once per run.
    """
    return [*_cost_unknown(leg, agent_run), *_near_limit(leg, agent_run)]


def _cost_unknown(leg: Leg, agent_run: AgentRunRow) -> list[tuple[str, dict[str, Any]]]:
    if leg.model is None or not leg.model.has_unknown_cost or COST_UNKNOWN in agent_run.options:
        return []
    agent_run.options = agent_run.options | {COST_UNKNOWN: True}
    limits = leg.config.executor
    data = {
        "model": leg.model.llm.model,
        "max_cost_usd_per_run": limits.max_cost_usd_per_run,
        "max_tokens_per_run": limits.max_tokens_per_run,
    }
    log.warning("agent_cost_unknown", agent_run_id=str(agent_run.id), **data)
    return [(COST_UNKNOWN, data)]


def _near_limit(leg: Leg, agent_run: AgentRunRow) -> list[tuple[str, dict[str, Any]]]:
    limits = leg.config.executor
    used = {
        "cost_usd": (agent_run.cost_usd, limits.max_cost_usd_per_run),
        "tokens": (agent_run.token_count, limits.max_tokens_per_run),
    }
    near = {name: {"used": spent, "limit": limit} for name, (spent, limit) in used.items()
            if limit and spent >= limits.warn_cost_share * limit}  # fmt: skip
    if not near or BUDGET_WARNED in agent_run.options:
        return []
    agent_run.options = agent_run.options | {BUDGET_WARNED: True}
    return [("budget_warning", near)]


def search_web(
    leg: Leg, rows: Sequence[AgentStepRow], step: PlanStep, result: PlanStepResult
) -> AgentStepRow | None:
    """A search of the web that the steps after this search also depend on, if its best hit is very
    low. Once per plan.
    """
    is_low = (
        step.action == "rag_search"
        and result.status != "failed"
        and result.confidence < leg.config.search.web_search_below
    )
    has_searched = any(row.spec["action"] == WEB_SEARCH for row in rows)
    if not is_low or has_searched or WEB_SEARCH not in leg.tools or len(rows) >= MAX_STEPS:
        return None
    description = "Search the web, because the collections have little that fits."
    added = _added_search(rows, WEB_SEARCH, description, step.query)
    for row in rows:
        if step.step_id in row.spec["depends_on"]:
            row.spec = row.spec | {"depends_on": [*row.spec["depends_on"], added.step_id]}
    return added


def search_again(
    leg: Leg,
    agent_run: AgentRunRow,
    rows: Sequence[AgentStepRow],
    step: PlanStep,
    result: PlanStepResult,
    words: str,
) -> AgentStepRow | None:
    """A search with the words of a model that has read what the searches found and says that it
    does not answer the question, or with those of an answer that another passage contradicts. The
    step answers again after it. At most `executor.max_replans`
    times until a person adds something, and only while such a search finds a passage that the run
    did not have.
    """
    searches = [row for row in rows if row.spec["action"] in SEARCH_ACTIONS]
    count = agent_run.options.get(SEARCHED_AGAIN, 0)
    if not words or words in {row.spec["query"] for row in searches} or len(rows) >= MAX_STEPS:
        return None
    if count >= leg.config.executor.max_replans or (count and not _finds_more(searches)):
        return None
    agent_run.options = agent_run.options | {SEARCHED_AGAIN: count + 1}
    added = _added_search(rows, "rag_search", "Search for what is missing.", words[:4_000])
    row = next(each for each in rows if each.step_id == step.step_id)
    row.state, row.result, row.confidence = "pending", None, None
    earlier = [each.step_id for each in rows if step.reads(each.step_id) and each.state in USABLE]
    row.spec = row.spec | {"depends_on": [*earlier, added.step_id]}
    return added


def _finds_more(searches: Sequence[AgentStepRow]) -> bool:
    """Whether the search with the highest number has a passage that no other one has, or has not
    ended.
    """
    known, is_new = set[str](), False
    for row in sorted(searches, key=lambda row: row.step_id):
        result = PlanStepResult.model_validate(row.result) if row.result else None
        found = {each["content"] for each in result.sources} if result else set[str]()
        is_new = result is None or not found <= known
        known |= found
    return is_new


def _added_search(
    rows: Sequence[AgentStepRow], action: str, description: str, query: str | None
) -> AgentStepRow:
    """A step with the next number of the plan."""
    first = rows[0]
    added = PlanStep(
        step_id=max(row.step_id for row in rows) + 1,
        action=action,
        description=description,
        query=query,
    )
    return AgentStepRow(
        tenant_id=first.tenant_id,
        agent_run_id=first.agent_run_id,
        plan_number=first.plan_number,
        step_id=added.step_id,
        spec=added.model_dump(mode="json"),
    )
