"""The thinking step: one run and what is known of its task, in; a reflection or nothing, out. No
database, no HTTP but the model's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import structlog

from apps.memory_api.core.redaction import redact
from apps.memory_api.llm.counted import Counted
from apps.memory_api.llm.errors import LLMError
from apps.memory_api.llm.port import LLMReply
from apps.memory_api.llm.structured import ask
from apps.memory_api.reflection import rules
from apps.memory_api.reflection.evidence import Evidence
from apps.memory_api.reflection.findings.find import find
from apps.memory_api.reflection.findings.schemas import Findings
from apps.memory_api.reflection.mind import Mind
from apps.memory_api.reflection.prompt import PROMPTS, Question, compose, id_of
from apps.memory_api.reflection.response import (
    MOST_SOURCES,
    BulletVerdict,
    LLMReflectionResponse,
)
from apps.memory_api.reflection.schemas import ReflectionContext, ReflectionResult
from apps.memory_api.reflection.trust import borrowed, repeats, sound, written

__all__ = ["Evidence", "Thought", "think"]

T = TypeVar("T")
log = structlog.get_logger()

LONG = 500
"""Events from which on the work moves to a thread, so that the event loop lives."""


@dataclass(frozen=True)
class Thought:
    """What came of it. `result` is None when there is honestly nothing to learn. `failure` is why
    rules stand in for the model; `usage` adds up all that was asked, and is None when nothing was.
    """

    result: ReflectionResult | None
    engine: str = "rules"
    failure: LLMError | None = None
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None
    found: Findings | None = None
    """What rules found, whoever thought."""
    verdicts: Sequence[BulletVerdict] = ()
    """Of the model, on bullets of the evidence only, each at most once. None by rules: they judge
    apart (`judge.py`)."""

    @property
    def degraded(self) -> bool:
        return self.failure is not None


async def think(
    context: ReflectionContext, evidence: Evidence, mind: Mind | None = None
) -> Thought:
    """Reflect by the rules, or by a model that is shown what the rules found. Raises the model's
    `LLMError`.
    """
    events = len(context.events) + sum(len(attempt.events) for attempt in evidence.attempts)

    async def aside(work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work) if events > LONG else work()

    def by_rules() -> tuple[Findings, ReflectionResult | None]:
        found = find(
            context,
            attempts=evidence.attempts,
            ground_truth=evidence.ground_truth,
            test_report=evidence.test_report,
        )
        return found, rules.reflect_on(context, found)

    found, base = await aside(by_rules)
    if mind is None:
        return Thought(base, found=found)
    prompt = mind.prompt(PROMPTS[context.outcome])
    question = await aside(
        lambda: compose(prompt, context, evidence, found, budget=mind.prompt_tokens)
    )
    counted = Counted(mind.llm)
    request = mind.request(
        question.messages, fixed=question.fixed, purpose="reflect", prompt_hash=prompt.hash
    )
    try:
        answer, reply = await ask(counted, LLMReflectionResponse, request)
    except LLMError as error:
        if not mind.or_rules:
            raise
        log.warning("reflection_by_rules", code=error.code, error=str(error))
        return Thought(
            base, failure=error, prompt_hash=prompt.hash, usage=counted.usage(), found=found
        )
    verdicts = sound(answer.verdicts, question.keys, question.shown)
    if parroted(answer, question, evidence.lessons):
        answer, verdicts = _scored_by_rules(answer, base), []
    elif answer.strategy and await aside(partial(borrowed, answer.strategy, written(context))):
        log.warning("strategy_repeats_the_trace")
        answer = answer.model_copy(update={"strategy": None})
    result = _result(context, found, base, answer, reply)
    return Thought(
        result,
        "llm",
        prompt_hash=prompt.hash,
        usage=counted.usage(),
        found=found,
        verdicts=verdicts,
    )


def parroted(answer: LLMReflectionResponse, question: Question, lessons: Sequence[str]) -> bool:
    """Whether the model only repeats what stands in the trace word for word: its author wrote that,
    not the model, and must not set the scores. A lesson that it was shown it may say again.
    """
    said = answer.reflection
    return repeats(said, question.shown) and not repeats(said, "\n".join(lessons))


def _scored_by_rules(
    answer: LLMReflectionResponse, base: ReflectionResult | None
) -> LLMReflectionResponse:
    log.warning("reflection_repeats_the_trace")
    scores = {
        "importance": base.importance if base else 0.5,
        "confidence": base.confidence if base else 0.5,
        "tags": list(base.tags) if base else [],
        "source_event_ids": [],
        "strategy": None,
    }
    return answer.model_copy(update=scores)


def _result(
    context: ReflectionContext,
    found: Findings,
    base: ReflectionResult | None,
    answer: LLMReflectionResponse,
    reply: LLMReply,
) -> ReflectionResult:
    known = {id_of(event, number) for number, event in enumerate(context.events)}
    named = [event for event in answer.source_event_ids if event in known]
    by_rules = base.source_event_ids if base else []
    return ReflectionResult(
        reflection_text=redact(answer.reflection).text,
        strategy_text=redact(answer.strategy).text if answer.strategy else None,
        importance=answer.importance,
        confidence=answer.confidence,
        tags=answer.tags or (base.tags if base else []),
        error_category=rules.category_of(found, context),
        source_event_ids=(named or by_rules)[:MOST_SOURCES],
        related_memory_ids=list(context.related_memory_ids),
        metadata=rules.about(context, found) | {"model": reply.model},
    )
