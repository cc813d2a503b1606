"""A reflection without a model, in the language of the trace. Pure and deterministic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from memory_api.reflection.rules.english import EnglishNarrative
from memory_api.reflection.rules.english_strategies import EnglishStrategies
from memory_api.reflection.rules.japanese import JapaneseNarrative
from memory_api.reflection.rules.japanese_strategies import JapaneseStrategies
from memory_api.reflection.rules.language import NarrativeLanguage, StrategyLanguage
from memory_api.reflection.rules.narrative import compose_narrative
from memory_api.reflection.rules.strategy import choose_strategy
from memory_api.reflection.schemas import ReflectionResult
from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.analyze import analyze_trace, source_events
from memory_api.trace_analysis.context import Attempt, ReflectionContext
from memory_api.trace_analysis.detectors.tool_errors import classify_error
from memory_api.trace_analysis.findings import Findings, has_wrong_answer
from memory_api.trace_analysis.scores import (
    calculate_confidence,
    calculate_importance,
    count_evidence,
)
from memory_api.traces.schemas import ErrorCategory, OutcomeType

_LANGUAGES: dict[str, tuple[NarrativeLanguage, StrategyLanguage]] = {
    "en": (EnglishNarrative(), EnglishStrategies()),
    "ja": (JapaneseNarrative(), JapaneseStrategies()),
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
    without_dataset: str | None = None,
) -> ReflectionResult | None:
    """The reflection on a run; None if nothing was found. Arguments as in `analyze_trace`."""
    found = analyze_trace(
        context,
        attempts=attempts,
        ground_truth=ground_truth,
        test_report=test_report,
        without_dataset=without_dataset,
    )
    return reflect_by_rules(context, found)


def reflect_by_rules(context: ReflectionContext, found: Findings) -> ReflectionResult | None:
    """The reflection from findings; None if they hold nothing to report."""
    words, advice = _LANGUAGES.get(found.language, _LANGUAGES["en"])
    text = compose_narrative(
        found,
        context.outcome,
        context.error,
        words,
        outcome_is_known=context.outcome_is_known,
    )
    if not text:
        return None
    evidence = count_evidence(found)
    return ReflectionResult(
        reflection_text=text,
        strategy_text=choose_strategy(found, context.outcome, advice),
        importance=calculate_importance(context.outcome, evidence),
        confidence=calculate_confidence(evidence),
        tags=rule_tags(found, context)[0 if context.outcome_is_known else 1 :],
        error_category=error_category_of(found, context),
        source_event_ids=source_events(found, context.outcome),
        related_memory_ids=list(context.related_memory_ids),
        metadata=rule_metadata(context, found),
    )


def narrative_language(language: str) -> NarrativeLanguage:
    """The sentences of a language; English if it is not supported."""
    return _LANGUAGES.get(language, _LANGUAGES["en"])[0]


def rule_metadata(context: ReflectionContext, found: Findings) -> dict[str, Any]:
    """The metadata of a reflection by rules or by a model."""
    return {
        "outcome": context.known_outcome,
        "task_description": _kept(context.task_description),
        "event_count": len(context.events),
        "session_id": str(context.session_id) if context.session_id else None,
        "language": found.language,
        "tools": list(found.tools),
        "findings": found.as_json(),
    }


def _kept(text: str | None) -> str | None:
    """The text, cut to 4,000 characters. The trace holds the whole text."""
    return text if text is None or len(text) <= _LONGEST else excerpt(text, _LONGEST)


def error_category_of(f: Findings, context: ReflectionContext) -> ErrorCategory | None:
    """The reported category, else the one that the findings show; None for a success without a
    reported error."""
    stated = context.error.error_category if context.error else None
    if stated and stated is not ErrorCategory.UNKNOWN_ERROR:
        return stated
    if context.error and context.error.error_message:
        kind, category = classify_error(context.error.error_message)
        return category if kind != "failed" else stated
    if context.outcome is OutcomeType.SUCCESS:
        return stated
    if context.outcome is OutcomeType.TIMEOUT:
        return ErrorCategory.TIMEOUT_ERROR
    if f.crash:
        return f.crash.category
    if f.failed_assertions or f.action_deviations or f.missing_outputs or has_wrong_answer(f):
        return ErrorCategory.VALIDATION_ERROR
    last = next((x for x in reversed(f.failed_calls) if not x.tool_succeeded_later), None)
    if last:
        return last.category
    return (
        ErrorCategory.UNKNOWN_ERROR
        if context.outcome in (OutcomeType.ERROR, OutcomeType.FAILURE)
        else stated
    )


def rule_tags(f: Findings, context: ReflectionContext) -> list[str]:
    """Outcome, kinds of findings, then tools; lower case, at most 10."""
    outcome = context.outcome
    tags = [outcome.value]
    category = error_category_of(f, context)
    if category is ErrorCategory.TIMEOUT_ERROR:
        tags.append("timeout")
    last = next((x for x in reversed(f.failed_calls) if not x.tool_succeeded_later), None)
    if outcome is not OutcomeType.SUCCESS:
        tags += [x.kind for x in (f.crash, last) if x and x.kind != "failed"]
    shown = {
        "wrong-answer": has_wrong_answer(f)
        and f.final_answer is not None
        and bool(f.final_answer.given_answer),
        "wrong-action": bool(f.action_deviations),
        "test-failure": bool(f.failed_assertions),
        "loop": bool(f.failure_streaks) or any(r.failed_count for r in f.repeated_calls),
        "recovered": bool(f.repaired_calls) and outcome is OutcomeType.SUCCESS,
        "contrast": f.attempt_contrast is not None,
        "refusal": any(r.kind == "declined" for r in f.refusals),
        "hand-over": any(r.kind == "handed_over" for r in f.refusals),
        "dialogue": f.dialogue is not None,
        "several-agents": f.team is not None,
    }
    tags += [name for name, true in shown.items() if true]
    tags += [_TAG.sub("-", t.casefold()).strip("-.")[:64] for t in _tools(f)]
    return list(dict.fromkeys(t for t in tags if t))[:_MOST_TAGS]


def _tools(f: Findings) -> list[str]:
    """The tools of the findings first, then all tools in order of use."""
    named = (
        [d.tool for d in f.action_deviations]
        + [x.tool for x in reversed(f.failed_calls)]
        + [r.tool for r in f.repaired_calls]
    )
    if f.argument_origin:
        named.append(f.argument_origin.tool)
    return list(dict.fromkeys([*named, *f.tools]))[:4]
