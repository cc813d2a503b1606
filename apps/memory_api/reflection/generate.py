"""Generates a reflection from a trace and its evidence: by the rules, or by a model that is shown
what the rules found. No database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from memory_api.core.isolated_work import run_isolated
from memory_api.core.secret_redaction import redact
from memory_api.core.telemetry import get_logger
from memory_api.llm.errors import LLMError, LLMOverBudget, LLMUnparseable
from memory_api.llm.model_session import ModelSession
from memory_api.llm.prompts import PromptMessages
from memory_api.llm.structured_output import request_structured
from memory_api.llm.wrappers import MeteredLLM
from memory_api.reflection import rules
from memory_api.reflection.evidence import Evidence, analyze, input_size
from memory_api.reflection.model_output import (
    ACTIONS,
    CAUSES_WITHOUT_RULES,
    MAX_SOURCE_EVENTS,
    REMEDIES,
    CauseKind,
    ModelReflection,
    ModelVerdict,
    SharedReflection,
    quotations_of_input,
    reflection_class,
    validate_verdicts,
)
from memory_api.reflection.prompt import (
    build_messages,
    lesson_ids,
    load_reflection_prompt,
    omitted_fields,
)
from memory_api.reflection.schemas import ReflectionResult
from memory_api.reflection.trace_text import event_id_of
from memory_api.text.quotations import QUOTATIONS
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of
from memory_api.traces.schemas import OutcomeType

MAX_SIZE_WITHOUT_THREAD = 64 * 1024
"""Characters of a trace whose prompt is written at once; that of a larger one, in a thread."""
MIN_COPIED_LENGTH = 40
"""Characters of a root cause or an explanation that are no accident if the trace has them too."""
_CAUSES_WITHOUT_COMPARISON = CAUSES_WITHOUT_RULES | {"succeeded_by_luck"}
log = get_logger(__name__)


@dataclass(frozen=True)
class GeneratedReflection:
    """`result` is None if there is nothing to learn, or if the model gave only verdicts. `failure`
    is why the rules stood in for the model. `usage` is the sum over all model calls; None without
    any.
    """

    result: ReflectionResult | None
    engine: str = "rules"
    failure: LLMError | None = None
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None
    verdicts: Sequence[ModelVerdict] = ()
    """The model's verdicts, at most one for each bullet of the evidence."""
    confirmed_lessons: Sequence[UUID] = ()
    """The known lessons that the model found confirmed."""


async def generate_reflection(
    context: ReflectionContext,
    evidence: Evidence,
    model: ModelSession | None = None,
    *,
    facts: Sequence[Fact] | None = None,
    shared: SharedReflection | None = None,
) -> GeneratedReflection:
    """Reflect by the rules, or by a model if there is one. `facts` are those of this context and
    evidence, if they are known already; `shared` is what the model answered before. Raises the
    model's `LLMError` unless rules may stand in.
    """
    found = await analyze(context, evidence) if facts is None else facts
    size = input_size(context, evidence)

    reflect = partial(rules.reflect_by_rules, context, found)
    by_rules = await run_isolated(reflect, size, context.tenant_id)
    if model is None:
        return GeneratedReflection(by_rules)
    prompt = load_reflection_prompt(model, context.outcome)
    build = partial(build_messages, prompt, context, evidence, found, budget=model.prompt_tokens)
    messages = build() if size <= MAX_SIZE_WITHOUT_THREAD else await asyncio.to_thread(build)
    metered = MeteredLLM.of(model.llm)
    if shared is None:
        request = model.request(
            messages.messages,
            cache_prefix=messages.cache_prefix,
            purpose="reflect",
            prompt_hash=prompt.hash,
        )
        try:
            answer, reply = await request_structured(
                metered,
                reflection_class(context.outcome),
                request,
                omit=omitted_fields(evidence),
                find_problem=ModelReflection.missing_text,
            )
            if not answer.reflection and not evidence.bullets:  # verdicts on nothing
                raise LLMUnparseable(answer.missing_text(), reply=reply)
        except LLMError as error:
            if isinstance(error, LLMOverBudget) or not model.fallback_to_rules:
                raise
            log.warning("reflection_by_rules", code=error.code, error=str(error))
            return GeneratedReflection(
                by_rules, failure=error, prompt_hash=prompt.hash, usage=metered.usage()
            )
        confirmed = _confirmed_lessons(answer, evidence)
        shared = SharedReflection(
            answer=answer, confirmed_lessons=confirmed, model=reply.model, prompt_hash=prompt.hash
        )
    answer = shared.answer
    verdicts = validate_verdicts(answer.verdicts, messages.bullet_keys, messages.variable_text)
    copied = parts_copied_from_trace(answer, messages, [n.text for n in evidence.lessons])
    if copied:
        log.warning("reflection_repeats_the_trace")
        answer, verdicts = _with_scores_of_rules(answer, by_rules), []
        shared = shared.model_copy(update={"confirmed_lessons": []})
    elif not answer.may_have_rules:
        answer = answer.model_copy(update={"rules": []})
    result = _to_result(context, found, by_rules, answer, shared.model, copied)
    return GeneratedReflection(
        result if answer.reflection else None,
        "llm",
        prompt_hash=shared.prompt_hash,
        usage=metered.usage(),
        verdicts=verdicts,
        confirmed_lessons=shared.confirmed_lessons,
    )


def parts_copied_from_trace(
    answer: ModelReflection, messages: PromptMessages, lessons: Sequence[str]
) -> list[str]:
    """The root cause and the explanation, if they are copied from the trace. Then the author of the
    trace wrote them, and must not set the scores; the rules wait for confirmation. Copying a known
    lesson is allowed.
    """
    parts = [part for part in (answer.root_cause, answer.explanation) if part]
    copied = quotations_of_input(parts, messages.variable_text)
    if copied:
        of_lessons = quotations_of_input(copied, "\n".join(lessons))
        copied = [part for part in copied if part not in of_lessons]
    is_copy = len(copied) == len(parts) or any(len(part) >= MIN_COPIED_LENGTH for part in copied)
    return copied if is_copy else []


def _confirmed_lessons(answer: ModelReflection, evidence: Evidence) -> list[UUID]:
    known = lesson_ids(evidence)
    named = (known.get(name.upper()) for name in answer.same_as)
    return [lesson.memory_id for lesson in named if lesson is not None]


def _with_scores_of_rules(
    answer: ModelReflection, by_rules: ReflectionResult | None
) -> ModelReflection:
    scores = {
        "importance": by_rules.importance if by_rules else 0.5,
        "confidence": by_rules.confidence if by_rules else 0.5,
        "tags": list(by_rules.tags) if by_rules else [],
        "source_event_ids": [],
        "task_hint": None,
        "same_as": [],
        "cause_kind": "unknown",
        "second_cause_kind": None,
    }
    return answer.model_copy(update=scores)


def _claimed_cause(
    context: ReflectionContext, facts: Sequence[Fact], answer: ModelReflection
) -> CauseKind | None:
    """The cause that the model names. None for a decision of the agent in a successful run without
    a failed attempt at its task or a failed call that was repaired: without a comparison, nothing
    shows that the decision determined the outcome.
    """
    compared = facts_of(facts, FactKind.DIFFERENCE, FactKind.CORRECTED_CALL)
    is_compared = any(fact.values.get("aspect") != "same_calls" for fact in compared)
    if context.outcome is OutcomeType.SUCCESS and not is_compared:
        return answer.cause_kind if answer.cause_kind in _CAUSES_WITHOUT_COMPARISON else None
    return answer.cause_kind


def _to_result(
    context: ReflectionContext,
    facts: Sequence[Fact],
    by_rules: ReflectionResult | None,
    answer: ModelReflection,
    model: str,
    copied: Sequence[str],
) -> ReflectionResult:
    event_ids = {event_id_of(event, number) for number, event in enumerate(context.events)}
    sources = [event_id for event_id in answer.source_event_ids if event_id in event_ids]
    sources = sources or (by_rules.source_event_ids if by_rules else [])
    tools = {event.tool_name for event in context.events if event.tool_name}
    rules_by_text = {redact(r.to_sentence(tools)).text: r for r in reversed(answer.rules)}
    texts = list(reversed(rules_by_text))
    notes = {
        "model": model,
        REMEDIES: {text: rule.remedy for text, rule in rules_by_text.items()},
        ACTIONS: {text: redact(rule.do).text for text, rule in rules_by_text.items()},
    }
    return ReflectionResult(
        reflection_text=redact(answer.reflection).text,
        strategy_text=texts[0] if texts else None,
        root_cause=redact(answer.root_cause).text or None,
        explanation=redact(answer.explanation).text or None,
        cause_kind=_claimed_cause(context, facts, answer),
        rules=texts,
        task_hint=redact(answer.task_hint).text if answer.task_hint else None,
        importance=answer.importance,
        confidence=answer.confidence,
        tags=answer.tags or (by_rules.tags if by_rules else []),
        error_category=rules.error_category_of(facts, context),
        source_event_ids=sources[:MAX_SOURCE_EVENTS],
        related_memory_ids=list(context.related_memory_ids),
        metadata=rules.rule_metadata(context, facts)
        | notes
        | ({"second_cause_kind": answer.second_cause_kind} if answer.second_cause_kind else {})
        | ({QUOTATIONS: list(copied)} if copied else {}),
    )
