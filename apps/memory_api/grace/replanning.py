"""Replanning: when, how, and with which limits (S3.48–S3.53). The planner makes the new plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from memory_api.grace.agent_model import AgentModel
from memory_api.grace.config import GraceConfig
from memory_api.grace.execution_plan import (
    ANSWER_ACTIONS,
    MAX_STEPS,
    SEARCH_ACTIONS,
    USABLE,
    ExecutionPlan,
    ExecutionState,
    PlanStep,
    new_plan_id,
)
from memory_api.grace.planner import PlanningContext, create_plan
from memory_api.llm.untrusted_text import fence_text

Trigger = Literal["step_failed", "low_confidence", "user_feedback", "new_information", "timeout"]
Strategy = Literal["partial", "full", "fallback", "skip", "abort"]
BY_PERSON: frozenset[Trigger] = frozenset({"user_feedback", "new_information"})
"""Triggers that a person causes."""

FROM_THE_START = re.compile(
    r"(?:最初から|やり直し|はじめから|start over\b"
    r"|(?:start (?:again )?)?from the (?:beginning|start)\b)"
    r"[\s:：,、。.;–-]*",
    re.IGNORECASE,
)
"""With the punctuation after it, because the rest is what is searched."""
FEEDBACK_WORDS = re.compile(
    r"違う|間違|修正|変更|やり直|\b(?:wrong|incorrect|change|instead)\b", re.IGNORECASE
)
"""Words by which an input on a step is taken as feedback on the plan."""
FEW_FINISHED = 0.6
"""Below this share of finished steps, low confidence plans everything again."""
FIRST_SHARE = 0.34
"""A failure in this first share of the steps plans everything again."""
MAX_TITLES = 2
MAX_SEARCHED = 20
"""The latest queries of a run, which a new plan must not repeat."""


@dataclass(frozen=True)
class ReplanContext:
    """Why a plan is replaced, and how far it is."""

    trigger: Trigger
    step_id: int | None = None
    error: str = ""
    feedback: str = ""


@dataclass(frozen=True)
class ReplanResult:
    """The new plan, or None for an abort. `kept` are the finished steps of the old plan."""

    strategy: Strategy
    plan: ExecutionPlan | None
    kept: Sequence[int] = ()


def choose_strategy(
    why: ReplanContext,
    state: ExecutionState,
    replan_count: int,
    config: GraceConfig,
) -> Strategy:
    """In this order: limit reached → abort, except for the words of a person, whom the run asks a
    limited number of times; step with a fallback → fallback; a failed search of which the plan has
    another with results → skip; timeout → full; user feedback → full if it says so, else partial;
    low confidence → full if few steps are finished; failure in the first third → full; else
    partial.
    """
    if replan_count >= config.executor.max_replans and why.trigger not in BY_PERSON:
        return "abort"
    step = state.step(why.step_id) if why.step_id is not None else None
    if step is not None and step.fallback and why.trigger not in ("user_feedback",):
        return "fallback"
    if (
        why.trigger in ("step_failed", "timeout")
        and step is not None
        and _can_do_without(step, state)
    ):
        return "skip"
    if why.trigger == "timeout":
        return "full"
    if why.trigger in BY_PERSON:
        return "full" if step is None or FROM_THE_START.search(why.feedback) else "partial"
    if why.trigger == "low_confidence":
        return "full" if state.finished_share < FEW_FINISHED else "partial"
    if step is None or step.step_id / len(state.plan.steps) <= FIRST_SHARE:
        return "full"
    return "partial"


def adds_fact(why: ReplanContext, state: ExecutionState) -> bool:
    """Whether a person said what was missing for an answer, and not that the plan is wrong."""
    is_fact = why.trigger == "new_information" and not FEEDBACK_WORDS.search(why.feedback)
    return is_fact and why.step_id is not None and state.step(why.step_id).action in ANSWER_ACTIONS


def _can_do_without(step: PlanStep, state: ExecutionState) -> bool:
    """Whether the step is a search and another search has found something."""
    return step.action in SEARCH_ACTIONS and any(
        result.action in SEARCH_ACTIONS and state.states[number] in USABLE and result.found
        for number, result in state.results.items()
        if number != step.step_id
    )


async def make_replan(
    strategy: Strategy,
    why: ReplanContext,
    state: ExecutionState,
    context: PlanningContext,
    model: AgentModel | None,
) -> ReplanResult:
    """Carry out a strategy. Raises an `LLMError` if the model cannot be reached."""
    if strategy == "abort":
        return ReplanResult("abort", None)
    if strategy == "fallback" and why.step_id is not None:
        return _use_fallback(why.step_id, state)
    if strategy == "skip" and why.step_id is not None:
        return skip_step(why.step_id, state)
    query, titles = context.query, list[str]()
    if model is None:
        query = _add_words_of_person(why, context)
        if query == context.query and strategy == "full":
            titles = _found_titles(state)
        if not why.feedback and " ".join([query, *titles]) in (context.query, *context.searched):
            return ReplanResult("abort", None)  # the plan would be the same again
    is_partial = strategy == "partial"
    kept = _kept_steps(why, state) if is_partial else []
    has_answers = any(step.action not in SEARCH_ACTIONS for step in kept)
    finished = [step.step_id for step in kept] if has_answers else []
    situation = _describe(why, state, context, finished, keep=is_partial)
    made = await create_plan(
        replace(
            context,
            query=query,
            added_search_words=titles,
            situation=situation,
            finished=finished,
            corrections=(),
        ),
        model,
    )
    confirm = made.requires_confirmation or _needs_confirmation(why, made, context)
    made = made.model_copy(
        update={"original_query": context.query, "requires_confirmation": confirm}
    )
    return _merge(kept, made) if is_partial else ReplanResult("full", made)


def _add_words_of_person(why: ReplanContext, context: PlanningContext) -> str:
    """The question with what a person has said, or their words alone if they replace it."""
    added = [why.feedback] if why.feedback else list(context.person_inputs)
    words = [each for text in added if (each := FROM_THE_START.sub(" ", text).strip())]
    if words and why.trigger == "user_feedback" and not FROM_THE_START.search(why.feedback):
        return words[0]
    return " ".join(dict.fromkeys([context.query, *words]))


def _found_titles(state: ExecutionState) -> list[str]:
    """The titles of the passages that were found: words for another search (S3.50)."""
    found = [source for each in state.results.values() for source in each.sources]
    titles = [str(source.get("title") or "") for source in found[:MAX_TITLES]]
    return list(dict.fromkeys(filter(None, titles)))


def _needs_confirmation(why: ReplanContext, made: ExecutionPlan, context: PlanningContext) -> bool:
    """Whether a person confirms the new plan: after their own words, or if a tool of the plan may
    change something. A plan that only searches and answers goes on; its answer has a confidence.
    """
    if context.config.replan.confirm_all or why.trigger in BY_PERSON:
        return True
    tools = [context.tools[step.action] for step in made.steps if step.action in context.tools]
    return any(not tool.idempotent for tool in tools)


def _use_fallback(step_id: int, state: ExecutionState) -> ReplanResult:
    """Swap the action of the step. The fallback has no fallback."""
    steps = [
        step.model_copy(update={"action": step.fallback, "fallback": None})
        if step.step_id == step_id
        else step
        for step in state.plan.steps
    ]
    return _changed(state, steps, "fallback", without={step_id})


def skip_step(step_id: int, state: ExecutionState) -> ReplanResult:
    """Remove the step, also from the dependencies of others."""
    steps = [step.without(step_id) for step in state.plan.steps if step.step_id != step_id]
    if not steps:
        return ReplanResult("abort", None)
    return _changed(state, steps, "skip", without={step_id})


def _changed(
    state: ExecutionState, steps: list[PlanStep], strategy: Strategy, without: set[int]
) -> ReplanResult:
    plan = state.plan.model_copy(
        update={"steps": steps, "plan_id": new_plan_id(), "requires_confirmation": False}
    )
    kept = [n for n, each in state.states.items() if each in USABLE and n not in without]
    return ReplanResult(strategy, plan, kept)


def _kept_steps(why: ReplanContext, state: ExecutionState) -> list[PlanStep]:
    """All finished steps except the one that is replaced, whatever their numbers."""
    return [
        step
        for step in state.plan.steps
        if state.states[step.step_id] in USABLE and step.step_id != why.step_id
    ]


def _merge(kept: Sequence[PlanStep], made: ExecutionPlan) -> ReplanResult:
    """The kept steps, then the new ones. These get numbers after them, unless they have such."""
    offset = max((step.step_id for step in kept), default=0)
    new = made.steps
    if new[0].step_id <= offset:
        numbers = {step.step_id: offset + n for n, step in enumerate(new, start=1)}
        new = [step.renumber(numbers) for step in new]
    if len(kept) + len(new) > MAX_STEPS:
        return ReplanResult("abort", None)
    plan = made.model_copy(update={"steps": [*kept, *new]}).depend_on_variables()
    return ReplanResult("partial", plan, [step.step_id for step in kept])


def _describe(
    why: ReplanContext,
    state: ExecutionState,
    context: PlanningContext,
    finished: Sequence[int],
    *,
    keep: bool,
) -> str:
    """The situation for the planner, fenced: errors and outputs are data."""
    lines = [f"Reason: {why.trigger}"]
    if why.step_id is not None:
        step = state.step(why.step_id)
        lines.append(f"Step {why.step_id} ({step.action}): {step.description}")
    if context.searched:
        words = "\n".join(context.searched[-MAX_SEARCHED:])
        lines.append("Searched for:\n" + fence_text(words, label="queries"))
    if why.error:
        lines.append(fence_text(why.error[:1_000], label="error"))
    said = dict.fromkeys([*context.person_inputs, *filter(None, [why.feedback])])
    if said:
        words = "\n".join(said)[-10_000:]
        lines.append("The person who asks has said:\n" + fence_text(words, label="person"))
    done = [
        f"Step {n} ({result.action}) is finished: {result.output[:200] or 'nothing'}"
        for n, result in state.results.items()
        if state.states[n] in USABLE
    ]
    if done:
        lines.append(fence_text("\n".join(done), label="finished"))
    if finished:
        lines.append(
            f"Number the remaining steps from {max(finished) + 1}. A search can have the number of"
            " a finished step that is not a search in braces."
        )
    lines += [
        f"The person skipped the question of step {step.step_id}. Do not ask it again."
        for step in state.plan.steps
        if step.action == "ask_user" and state.states[step.step_id] == "skipped"
    ]
    lines.append(
        "Plan only the remaining steps. Use other words for the searches."
        if keep
        else "Plan again from the beginning. Use other words for the searches."
    )
    return "\n".join(lines)
