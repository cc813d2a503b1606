"""The planner: complexity of a question, and a plan by a model or by the template (S3.16–S3.21)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import structlog
from pydantic import BaseModel, Field, ValidationError, model_validator

from memory_api.grace.agent_model import AgentModel
from memory_api.grace.config import GraceConfig
from memory_api.grace.context import EarlierAnswer, format_conversation, with_earlier_question
from memory_api.grace.corrections import Correction, choose_correction
from memory_api.grace.execution_plan import ExecutionPlan, PlanStep, find_plan_problems
from memory_api.grace.tools.port import Tool
from memory_api.llm.errors import LLMError, LLMOverBudget, LLMUnparseable
from memory_api.llm.untrusted_text import fence_text, fit_text

log = structlog.get_logger()

START, SEVERAL_QUESTIONS, CLAUSE_SHARE, LONG_SHARE = 0.3, 0.2, 0.1, 0.1
MAX_CLAUSES = 3
LONG_QUERIES = (100, 200)
"""A query longer than each of these is .1 more complex."""
_CLAUSE_END = re.compile(r"[,;、，；](?=\s*\S)")
MAX_ESTIMATED_LENGTH = 1_000
MAX_COLLECTIONS_TOKENS = 8_000
TEMPLATE_COMPLEXITY = 0.5


DERIVED_FIELDS = frozenset({"step_id", "depends_on", "fallback", "requires_confirmation"})
"""Fields that a model is not asked for. They follow from the order of the steps, from the tools and
from the complexity, and are used if a model states them.
"""


class PlannedStep(BaseModel):
    """A step as the model writes it."""

    action: str
    query: str | None = None
    collection: str | None = None
    step_id: int | None = Field(default=None, ge=1)
    depends_on: list[int] = Field(default_factory=list)
    fallback: str | None = None


class PlannedSteps(BaseModel):
    """A plan as the model writes it."""

    complexity: float = Field(ge=0, le=1)
    steps: list[PlannedStep] = Field(min_length=1)
    cited_bullets: list[str] = Field(default_factory=list)
    requires_confirmation: bool = False

    @model_validator(mode="after")
    def _check_queries(self) -> Self:
        """Only the last step may answer the question itself."""
        for number, step in enumerate(self.steps[:-1], start=1):
            if not (step.query or "").strip():
                raise ValueError(f"Step {number} has no `query`. Only the last step may have none.")
        return self


@dataclass(frozen=True)
class PlanningContext:
    """What the planner knows. `bullets` is a block of the playbook, `bullet_keys` are its bullets.
    `experience` are earlier outcomes of similar questions, best first. `situation` is set for a
    replan.
    """

    query: str
    config: GraceConfig
    tools: Mapping[str, Tool]
    collections: Sequence[tuple[str, str]] = ()
    """(name, description)"""
    bullets: str = ""
    bullet_keys: Sequence[str] = ()
    experience: Sequence[str] = ()
    preferred_collection: str | None = None
    situation: str = ""
    corrections: Sequence[Correction] = ()
    """Those of the bullets that correct a question."""
    conversation: Sequence[EarlierAnswer] = ()
    """Earlier questions and answers that this question follows up on, oldest first."""
    person_inputs: Sequence[str] = ()
    """What a person has added to the question, oldest first."""
    searched: Sequence[str] = ()
    """The words of all searches of the run up to now, also of plans that were replaced."""
    finished: Sequence[int] = ()
    """Steps whose answers a replan can use, and that its steps are numbered after."""
    added_search_words: Sequence[str] = ()
    """Words that a search by the template adds to the question."""


def estimate_complexity(query: str) -> float:
    """The complexity by the structure of the question, .3 to 1: question marks, clauses, length. It
    knows no words. A model says how complex the question is when it plans.
    """
    start = query[:MAX_ESTIMATED_LENGTH]
    score = START + CLAUSE_SHARE * min(MAX_CLAUSES, len(_CLAUSE_END.findall(start)))
    score += SEVERAL_QUESTIONS * (start.count("?") + start.count("？") > 1)
    score += sum(LONG_SHARE for length in LONG_QUERIES if len(query) > length)
    return round(min(1.0, score), 3)


async def create_plan(context: PlanningContext, model: AgentModel | None) -> ExecutionPlan:
    """A valid plan. The template without a model, if the plan of the model is not valid, or if the
    question is below `planner.simple_below`. A budget that is spent raises `LLMOverBudget`.
    """
    complexity = estimate_complexity(context.query)
    if model is None:
        return _recall_plan(context, complexity) or template_plan(context, complexity)
    is_simple = complexity < context.config.planner.simple_below
    if is_simple and not context.situation and not context.conversation:
        return template_plan(context, complexity)
    try:
        plan = await _plan_by_model(context, model)
    except LLMOverBudget:
        raise
    except LLMError as error:
        if error.is_outage:
            raise
        log.warning("plan_not_usable", error=str(error)[:200])
        return template_plan(context, TEMPLATE_COMPLEXITY)
    max_steps = context.config.planner.max_steps
    problems = find_plan_problems(plan, frozenset(context.tools), max_steps, context.finished)
    if problems:
        log.warning("plan_not_valid", problems=problems[:3])
        return template_plan(context, TEMPLATE_COMPLEXITY)
    return plan.end_with_answer().depend_on_variables()


async def _plan_by_model(context: PlanningContext, model: AgentModel) -> ExecutionPlan:
    values = {
        "tools": "\n".join(f"- {name}: {tool.description}" for name, tool in context.tools.items()),
        "collections": _format_collections(context.collections),
        "bullets": context.bullets,
        "experience": "\n".join(f"- {each}" for each in context.experience),
        "situation": context.situation,
        "conversation": format_conversation(context.conversation),
        "query": fence_text(context.query, label="question"),
    }
    planned = await model.ask(
        PlannedSteps,
        "plan",
        values,
        temperature=context.config.llm.temperature,
        omit=DERIVED_FIELDS if context.bullets else DERIVED_FIELDS | {"cited_bullets"},
    )
    max_steps = context.config.planner.max_steps
    if len(planned.steps) > max_steps:
        log.warning("plan_too_long", steps=len(planned.steps))
        return template_plan(context, TEMPLATE_COMPLEXITY)
    try:
        first = max(context.finished, default=0) + 1
        steps = [_to_plan_step(context, n, step) for n, step in enumerate(planned.steps, first)]
    except ValidationError as error:
        raise LLMUnparseable("The plan has a step that is not valid.") from error
    return ExecutionPlan(
        original_query=context.query,
        complexity=planned.complexity,
        steps=steps,
        requires_confirmation=planned.requires_confirmation
        or planned.complexity >= context.config.planner.confirm_above,
        engine="llm",
        cited_bullet_keys=[key for key in planned.cited_bullets if key in context.bullet_keys],
    )


def _to_plan_step(context: PlanningContext, number: int, step: PlannedStep) -> PlanStep:
    names = [name for name, _ in context.collections]
    query = (step.query or "").strip()
    fallback = _search_fallback(context) if step.action == "rag_search" else None
    return PlanStep(
        step_id=step.step_id or number,
        action=step.action,
        description=query[:2_000] or "Answer the question.",
        query=query[:4_000] or context.query[:4_000],
        collection=step.collection if step.collection in names else None,
        depends_on=step.depends_on,
        fallback=step.fallback or fallback,
    )


def _search_fallback(context: PlanningContext) -> str | None:
    return "web_search" if "web_search" in context.tools else None


def _format_collections(collections: Sequence[tuple[str, str]]) -> str:
    """Fenced, because whoever may write can describe a collection."""
    lines = [f"- {name}: {' '.join(description.split())}" for name, description in collections]
    text = fit_text("\n".join(lines), MAX_COLLECTIONS_TOKENS)
    return fence_text(text, label="collections") if lines else "none"


def _recall_plan(context: PlanningContext, complexity: float) -> ExecutionPlan | None:
    """Answer with the corrected answer to a similar question. None if there is none."""
    chosen = choose_correction(context.query, context.corrections, ["corrected-answer"])
    if chosen is None:
        return None
    step = PlanStep(
        step_id=1,
        action="reasoning",
        description=f"Answer the question from bullet {chosen[0].key}.",
        query=context.query[:4_000],
        expected_output="The corrected answer.",
    )
    return ExecutionPlan(
        original_query=context.query,
        complexity=complexity,
        steps=[step],
        requires_confirmation=complexity >= context.config.planner.confirm_above,
        cited_bullet_keys=[chosen[0].key],
    )


def template_plan(context: PlanningContext, complexity: float) -> ExecutionPlan:
    """Search, then answer. The search uses the words that answered a similar question."""
    names = [name for name, _ in context.collections]
    default = context.config.search.default_collection
    preferred = context.preferred_collection
    collection = preferred if preferred in names else default if default in names else None
    question = with_earlier_question(context.query, context.conversation)
    words, cited = " ".join([question, *context.added_search_words]), list[str]()
    chosen = choose_correction(context.query, context.corrections, ["search-words"])
    if chosen is not None:
        words, cited = chosen[0].text, [chosen[0].key]
    steps = [
        PlanStep(
            step_id=1,
            action="rag_search",
            description="Search the collections for the question.",
            query=words[:4_000],
            collection=collection,
            expected_output="Passages that answer the question.",
            fallback=_search_fallback(context),
        ),
        PlanStep(
            step_id=2,
            action="reasoning",
            description="Answer the question from the passages.",
            query=question[:4_000],
            depends_on=[1],
            expected_output="An answer with citations.",
        ),
    ]
    return ExecutionPlan(
        original_query=context.query,
        complexity=complexity,
        steps=steps,
        requires_confirmation=complexity >= context.config.planner.confirm_above,
        cited_bullet_keys=cited,
    )
