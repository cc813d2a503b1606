"""Curates a playbook: decides what lessons should change in it. Nothing is changed yet.

The rules decide first; a model is asked about the lessons that they leave open.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import structlog

from memory_api.curation.context import CurationContext, embed_lessons, load_context
from memory_api.curation.model_output import ModelCuration, find_problem, validate_operations
from memory_api.curation.prompt import NAME, build_messages, group_equal_lessons
from memory_api.curation.rebase import drop_inapplicable
from memory_api.curation.rules import decide_by_rules
from memory_api.curation.schemas import CurationPlan, Decisions, KnownLesson, Lesson, ProposedChange
from memory_api.llm.errors import LLMError, may_use_rules
from memory_api.llm.model_session import ModelSession
from memory_api.llm.structured_output import request_structured
from memory_api.llm.wrappers import MeteredLLM
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import PlaybookRef
from memory_api.runtime import Runtime, open_model_session

log = structlog.get_logger()

PROMPT_TOKENS_DIVISOR = 3
"""Bullets and lessons need at most a third of the tokens that a reflection may show."""


async def curate(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: PlaybookRef,
    lessons: Sequence[Lesson],
    *,
    run_id: UUID | None,
    fallback_to_rules: bool = False,
) -> CurationPlan:
    """Decide what these lessons should change: at most one model call, and one more that shows the
    model its mistake. None if the rules can decide every lesson.

    Raises the model's `LLMError`, unless `fallback_to_rules`: then the rules decide and `failure`
    says why.
    """
    queries = None
    if runtime.llm is not None:
        queries = await embed_lessons(await runtime.get_tenant_embedder(tenant_id), lessons)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        row = await get_playbook(session, playbook)
        context = await load_context(session, row, playbook, lessons, queries)
    model = open_model_session(
        runtime,
        tenant_id,
        playbook.name,
        run_id,
        project_id=playbook.project_id,
        prompt_tokens=runtime.settings.llm_prompt_tokens // PROMPT_TOKENS_DIVISOR,
        fallback_to_rules=fallback_to_rules,
    )
    return await propose_changes(lessons, context, model)


async def propose_changes(
    lessons: Sequence[Lesson], context: CurationContext, model: ModelSession | None = None
) -> CurationPlan:
    """Decide by the rules, and by a model on the lessons that the rules leave open. No database.
    Raises the model's `LLMError` unless rules may stand in.
    """
    by_rules = decide_by_rules(lessons, context)
    undecided = sorted({n for change in by_rules.changes for n in change.lessons})
    if model is None or not undecided:
        return _to_plan(lessons, context, by_rules)
    prompt = model.prompt(NAME)
    groups = group_equal_lessons(undecided, lessons)
    messages = build_messages(prompt, lessons, groups, context, budget=model.prompt_tokens)
    known = {key: context.state.bullets[key] for key in messages.bullet_keys}
    metered = MeteredLLM(model.llm)
    request = model.request(
        messages.messages,
        cache_prefix=messages.cache_prefix,
        purpose="curate",
        prompt_hash=prompt.hash,
    )
    try:
        answer, _ = await request_structured(
            metered, ModelCuration, request, find_problem=partial(find_problem, known=known)
        )
    except LLMError as error:
        if not may_use_rules(error, allowed=model.fallback_to_rules):
            raise
        log.warning("curation_by_rules", code=error.code, error=str(error))
        update = {"failure": error, "prompt_hash": prompt.hash, "usage": metered.usage()}
        return _to_plan(lessons, context, by_rules).model_copy(update=update)
    by_model = validate_operations(answer, messages.bullet_keys, groups, lessons, context)
    decisions = Decisions(
        by_model.changes,
        [*by_rules.known_lessons, *by_model.known_lessons],
        [*by_rules.rejected_lessons, *by_model.rejected_lessons],
    )
    update = {"engine": "llm", "prompt_hash": prompt.hash, "usage": metered.usage()}
    return _to_plan(lessons, context, decisions).model_copy(update=update)


def _to_plan(
    lessons: Sequence[Lesson], context: CurationContext, decisions: Decisions
) -> CurationPlan:
    applicable, rejected = drop_inapplicable(context.state, decisions.changes)
    return CurationPlan(
        version=context.version,
        lessons=list(lessons),
        changes=applicable,
        known_lessons=_one_per_lesson(decisions.known_lessons, applicable),
        rejected_lessons=[*decisions.rejected_lessons, *rejected],
    )


def _one_per_lesson(
    known: Sequence[KnownLesson], changes: Sequence[ProposedChange]
) -> list[KnownLesson]:
    """One decision per lesson: a change of the playbook takes precedence over "already known"."""
    decided = {n for change in changes if change.delta.content for n in change.lessons}
    first: dict[int, KnownLesson] = {}
    for lesson in known:
        if lesson.lesson not in decided:
            first.setdefault(lesson.lesson, lesson)
    return list(first.values())
