"""A reflection without a model: what the trace itself shows, in the language of the trace. Pure and
deterministic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from apps.memory_api.reflection.findings.advise import advise
from apps.memory_api.reflection.findings.blame import sources
from apps.memory_api.reflection.findings.compose import compose, wrong
from apps.memory_api.reflection.findings.find import find
from apps.memory_api.reflection.findings.kinds import kind_of
from apps.memory_api.reflection.findings.schemas import Attempt, Findings
from apps.memory_api.reflection.findings.scores import confidence, evidence_of, importance
from apps.memory_api.reflection.findings.words.advice_en import EnglishAdvice
from apps.memory_api.reflection.findings.words.advice_ja import JapaneseAdvice
from apps.memory_api.reflection.findings.words.en import English
from apps.memory_api.reflection.findings.words.ja import Japanese
from apps.memory_api.reflection.findings.words.protocol import Advice, Words
from apps.memory_api.reflection.schemas import ReflectionContext, ReflectionResult
from apps.memory_api.traces.quotes import cut
from apps.memory_api.traces.schemas import ErrorCategory, OutcomeType

__all__ = ["Attempt", "about", "category_of", "reflect", "reflect_on"]

_LANGUAGES: dict[str, tuple[Words, Advice]] = {
    "en": (English(), EnglishAdvice()),
    "ja": (Japanese(), JapaneseAdvice()),
}
_TAG = re.compile(r"[^\w.\-]+")
_MOST_TAGS = 10
_LONGEST = 4_000


def reflect(
    context: ReflectionContext,
    *,
    attempts: Sequence[Attempt] = (),
    ground_truth: Any = None,
    test_report: str | None = None,
) -> ReflectionResult | None:
    """What this run teaches, or None when it honestly shows nothing. Arguments as in
    `findings.find`."""
    found = find(context, attempts=attempts, ground_truth=ground_truth, test_report=test_report)
    return reflect_on(context, found)


def reflect_on(context: ReflectionContext, found: Findings) -> ReflectionResult | None:
    """The same, from findings that are already there."""
    words, advice = _LANGUAGES.get(found.language, _LANGUAGES["en"])
    text = compose(found, context.outcome, context.error, words)
    if not text:
        return None
    evidence = evidence_of(found)
    return ReflectionResult(
        reflection_text=text,
        strategy_text=advise(found, context.outcome, advice),
        importance=importance(context.outcome, evidence),
        confidence=confidence(evidence),
        tags=tags_of(found, context),
        error_category=category_of(found, context),
        source_event_ids=sources(found, context.outcome),
        related_memory_ids=list(context.related_memory_ids),
        metadata=about(context, found),
    )


def words_of(language: str) -> Words:
    """How a language tells findings; English where we do not speak it."""
    return _LANGUAGES.get(language, _LANGUAGES["en"])[0]


def about(context: ReflectionContext, found: Findings) -> dict[str, Any]:
    """The metadata of a reflection, whoever wrote it."""
    return {
        "outcome": context.outcome.value,
        "task_description": _kept(context.task_description),
        "event_count": len(context.events),
        "session_id": str(context.session_id) if context.session_id else None,
        "language": found.language,
        "findings": found.as_json(),
    }


def _kept(text: str | None) -> str | None:
    """The text itself, or its beginning when it is too long to be kept twice (the trace holds it
    whole)."""
    return text if text is None or len(text) <= _LONGEST else cut(text, _LONGEST)


def category_of(f: Findings, context: ReflectionContext) -> ErrorCategory | None:
    """The stated category, else the one the evidence shows; None for a success that reports no
    error."""
    stated = context.error.error_category if context.error else None
    if stated and stated is not ErrorCategory.UNKNOWN_ERROR:
        return stated
    if context.error and context.error.error_message:
        kind, category = kind_of(context.error.error_message)
        return category if kind != "failed" else stated
    if context.outcome is OutcomeType.SUCCESS:
        return stated
    if context.outcome is OutcomeType.TIMEOUT:
        return ErrorCategory.TIMEOUT_ERROR
    if f.crash:
        return f.crash.category
    if f.assertions or f.departures or f.untold or wrong(f):
        return ErrorCategory.VALIDATION_ERROR
    last = next((x for x in reversed(f.failures) if not x.repaired), None)
    if last:
        return last.category
    return (
        ErrorCategory.UNKNOWN_ERROR
        if context.outcome in (OutcomeType.ERROR, OutcomeType.FAILURE)
        else stated
    )


def tags_of(f: Findings, context: ReflectionContext) -> list[str]:
    """Outcome, kinds of what was found, then the tools concerned; lower case, at most ten."""
    outcome = context.outcome
    tags = [outcome.value]
    category = category_of(f, context)
    if category is ErrorCategory.TIMEOUT_ERROR:
        tags.append("timeout")
    last = next((x for x in reversed(f.failures) if not x.repaired), None)
    if outcome is not OutcomeType.SUCCESS:
        tags += [x.kind for x in (f.crash, last) if x and x.kind != "failed"]
    shown = {
        "wrong-answer": wrong(f) and f.answer is not None and bool(f.answer.given),
        "wrong-action": bool(f.departures),
        "test-failure": bool(f.assertions),
        "loop": bool(f.streaks) or any(r.failing for r in f.repeats),
        "recovered": bool(f.retries) and outcome is OutcomeType.SUCCESS,
        "first-try": outcome is OutcomeType.SUCCESS
        and not f.failed_calls
        and not f.earlier_failures
        and f.calls > 0,
        "contrast": f.contrast is not None,
        "refusal": any(r.kind == "declined" for r in f.refusals),
        "hand-over": any(r.kind == "handed_over" for r in f.refusals),
        "dialogue": f.dialogue is not None,
    }
    tags += [name for name, true in shown.items() if true]
    tags += [_TAG.sub("-", t.casefold()).strip("-.")[:64] for t in _tools(f)]
    return list(dict.fromkeys(t for t in tags if t))[:_MOST_TAGS]


def _tools(f: Findings) -> list[str]:
    """Tools of what failed or mattered first, then in order of use."""
    named = (
        [d.tool for d in f.departures]
        + [x.tool for x in reversed(f.failures)]
        + [r.tool for r in f.retries]
    )
    if f.origin:
        named.append(f.origin.tool)
    return list(dict.fromkeys([*named, *f.tools]))[:4]
