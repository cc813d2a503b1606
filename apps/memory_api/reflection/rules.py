"""A reflection without a model: the facts of the trace, and the strategies that follow from their
structure alone. Pure and deterministic.

A strategy has one of four reasons: an identical call was repeated without effect; a call that
failed worked after its arguments changed; successful attempts at the task did something that failed
ones did not; the client stated the category of the error. Of strategies that say the same, one
remains, and none contradicts an identical call that worked later.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory_api.reflection.fact_text import fact_sentences, render
from memory_api.reflection.schemas import ReflectionResult
from memory_api.text.excerpts import excerpt
from memory_api.text.quotations import is_safe_name, safe_quotation, safe_quotations
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.arguments import COMMAND_ARGUMENTS
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of
from memory_api.trace_analysis.failures import classify_error, is_exit_code
from memory_api.trace_analysis.parser import describe_task, language_of
from memory_api.traces.schemas import ErrorCategory, EventType, OutcomeType

MAX_STRATEGIES = 3
MAX_SOURCE_EVENTS = 5
_MAX_SENTENCES = 8
_MAX_CHARACTERS = 1_500
_MAX_TAGS = 10
_MAX_TOOLS = 4
_MAX_TASK_LENGTH = 4_000
_MIN_SAME_RESPONSES = 3
"""Identical calls with the same response from which a strategy follows. Two may be a check."""
_BASE_IMPORTANCE = {
    OutcomeType.ERROR: 0.5,
    OutcomeType.FAILURE: 0.5,
    OutcomeType.TIMEOUT: 0.5,
    OutcomeType.PARTIAL: 0.4,
    OutcomeType.SUCCESS: 0.3,
}
_TAG = re.compile(r"[^\w.\-]+")
_NOTABLE_IN_SUCCESS = (
    *(FactKind.CORRECTED_CALL, FactKind.DIFFERENCE, FactKind.USER_RULE, FactKind.RETRIED_CALL),
)
_NOTABLE = (
    *(*_NOTABLE_IN_SUCCESS, FactKind.REPEATED_CALL, FactKind.ERROR, FactKind.FAILED_CALL),
    *(FactKind.TEST, FactKind.EXPECTATION),
)
_TELLING = (
    *(FactKind.USER_RULE, FactKind.EXPECTATION, FactKind.FAILED_CALL, FactKind.ERROR),
    *(FactKind.DIFFERENCE, FactKind.CORRECTED_CALL, FactKind.RETRIED_CALL),
    *(FactKind.REPEATED_CALL, FactKind.QUOTATION),
)


def reflect_by_rules(context: ReflectionContext, facts: Sequence[Fact]) -> ReflectionResult | None:
    """The reflection from facts; None if they tell nothing but counts and how the run ended, unless
    the client reported that it did not succeed.
    """
    text = fact_text(context, facts)
    if not text:
        return None
    strategies = [s.text for s in find_strategies(context, facts)][:MAX_STRATEGIES]
    importance, confidence = calculate_scores(context.outcome, facts)
    return ReflectionResult(
        reflection_text=text,
        strategy_text=strategies[0] if strategies else None,
        rules=strategies,
        importance=importance,
        confidence=confidence,
        tags=rule_tags(facts, context)[0 if context.outcome_is_known else 1 :],
        error_category=error_category_of(facts, context),
        source_event_ids=source_events(facts),
        related_memory_ids=list(context.related_memory_ids),
        metadata=rule_metadata(context, facts),
    )


def calculate_scores(outcome: OutcomeType, facts: Sequence[Fact]) -> tuple[float, float]:
    """Importance and confidence, which grow with `n`: the calls and other observations that the
    notable facts are about, and a tenth of all calls. They are base(outcome) + .4 n / (n + 3), and
    .3 + .6 n / (n + 3).
    """
    notable = (f for f in facts_of(facts, *_NOTABLE) if not f.values.get("met"))
    count = sum(f.values.get("count", f.values.get("failed_count", 1)) for f in notable)
    count += sum(f.values["calls"] for f in facts_of(facts, FactKind.COUNTS)) / 10
    share = count / (count + 3)
    return round(_BASE_IMPORTANCE[outcome] + 0.4 * share, 3), round(0.3 + 0.6 * share, 3)


def fact_text(context: ReflectionContext, facts: Sequence[Fact]) -> str:
    """Task, outcome and facts as text; '' if nothing is notable."""
    if not _is_notable(context, facts):
        return ""
    language = context_language(context)
    task = describe_task(context.events, context.task_description, context.task_goal)
    outcomes = (context.known_outcome, context.overruled_outcome)
    text = render(language, "opening", task, *outcomes)
    space = "" if language == "ja" else " "
    for sentence in fact_sentences(_reported_facts(context, facts), language)[:_MAX_SENTENCES]:
        longer = f"{text}{space}{sentence}" if text else sentence
        if len(longer) > _MAX_CHARACTERS:
            break
        text = longer
    return text


def _is_notable(context: ReflectionContext, facts: Sequence[Fact]) -> bool:
    known = context.known_outcome
    if known is not None and known is not OutcomeType.SUCCESS:
        return any(fact.kind is not FactKind.COUNTS for fact in facts)
    notable = facts_of(facts, *(_NOTABLE_IN_SUCCESS if known else _NOTABLE))
    return any(not known or fact.values.get("aspect") != "same_calls" for fact in notable)


def _reported_facts(context: ReflectionContext, facts: Sequence[Fact]) -> list[Fact]:
    """The facts for a reader, the counts last. Failed calls of a correction, retry or repetition,
    and the last message if it is the answer, are not reported twice; exit codes of 0 say nothing,
    and a session of unknown outcome may go on.
    """
    calls = facts_of(facts, FactKind.CORRECTED_CALL, FactKind.RETRIED_CALL, FactKind.REPEATED_CALL)
    reported_calls = {event_id for fact in calls for event_id in fact.event_ids}
    others = facts_of(facts, FactKind.EXPECTATION, FactKind.REPEATED_CALL)
    quoted = {event_id for fact in others for event_id in fact.event_ids}
    reported: list[Fact] = []
    for fact in facts:
        ids = set(fact.event_ids)
        is_known = (fact.kind is FactKind.FAILED_CALL and ids <= reported_calls) or (
            fact.kind is FactKind.QUOTATION and bool(ids & quoted)
        )
        is_silent = fact.kind is FactKind.EXIT_CODE or (
            fact.kind is FactKind.QUOTATION
            and fact.values.get("is_end")
            and not context.known_outcome
        )
        if fact.kind is not FactKind.COUNTS and not is_known and not is_silent:
            reported.append(fact)
    return [*reported, *facts_of(facts, FactKind.COUNTS)]


def context_language(context: ReflectionContext) -> str:
    return language_of(context.events, context.task_description)


def rule_metadata(context: ReflectionContext, facts: Sequence[Fact]) -> dict[str, Any]:
    task = context.task_description
    is_long = task is not None and len(task) > _MAX_TASK_LENGTH
    return {
        "outcome": context.known_outcome,
        "task_description": excerpt(task, _MAX_TASK_LENGTH) if task and is_long else task,
        "event_count": len(context.events),
        "session_id": str(context.session_id) if context.session_id else None,
        "language": context_language(context),
        "tools": _tools(context),
        "facts": [fact.to_json() for fact in facts],
    }


def _tools(context: ReflectionContext) -> list[str]:
    """The tools that were called, in order of use."""
    calls = (e for e in context.events if e.event_type is EventType.TOOL_CALL)
    return list(dict.fromkeys(e.tool_name for e in calls if e.tool_name))


def error_category_of(facts: Sequence[Fact], context: ReflectionContext) -> ErrorCategory | None:
    """The category that the client stated, else that of the reported error message; None for a
    success without a reported error.
    """
    stated = context.error.error_category if context.error else None
    if stated and stated is not ErrorCategory.UNKNOWN_ERROR:
        return stated
    if context.error and context.error.error_message:
        return classify_error(context.error.error_message) or stated
    if context.outcome is OutcomeType.SUCCESS:
        return stated
    if context.outcome is OutcomeType.TIMEOUT:
        return ErrorCategory.TIMEOUT_ERROR
    for fact in facts_of(facts, FactKind.ERROR):
        return classify_error(fact.values["message"]) or ErrorCategory.UNKNOWN_ERROR
    failed = [f for f in facts_of(facts, FactKind.FAILED_CALL) if not f.values["works_later"]]
    if failed:
        return classify_error(failed[-1].values["message"]) or ErrorCategory.TOOL_ERROR
    is_failure = context.outcome in (OutcomeType.ERROR, OutcomeType.FAILURE)
    return ErrorCategory.UNKNOWN_ERROR if is_failure else stated


def rule_tags(facts: Sequence[Fact], context: ReflectionContext) -> list[str]:
    """Outcome, category of the error, then tools; lower case, at most 10."""
    category = error_category_of(facts, context)
    is_shown = category not in (None, ErrorCategory.UNKNOWN_ERROR, ErrorCategory.TOOL_ERROR)
    tags = [context.outcome.value]
    if category and is_shown and context.outcome is not OutcomeType.SUCCESS:
        tags.append(category.value.removesuffix("_error"))
    named = [
        f.values["tool"] for f in facts_of(facts, FactKind.FAILED_CALL, FactKind.CORRECTED_CALL)
    ]
    tools = [t for t in dict.fromkeys([*reversed(named), *_tools(context)]) if t][:_MAX_TOOLS]
    tags += [_TAG.sub("-", tool.casefold()).strip("-.")[:64] for tool in tools]
    return list(dict.fromkeys(filter(None, tags)))[:_MAX_TAGS]


def source_events(facts: Sequence[Fact]) -> list[str]:
    """IDs of the events that the facts are about, the most telling facts first; at most five."""
    event_ids: list[str] = []
    for kind in _TELLING:
        for fact in facts_of(facts, kind):
            if kind is FactKind.EXPECTATION and fact.values["met"]:
                continue
            if kind is FactKind.FAILED_CALL and fact.values["works_later"]:
                continue
            event_ids += fact.event_ids[:2]
            response = fact.values.get("response") if kind is FactKind.FAILED_CALL else None
            event_ids += [response] if response else []
    return list(dict.fromkeys(event_ids))[:MAX_SOURCE_EVENTS]


@dataclass(frozen=True)
class Strategy:
    """A strategy and the fact that it follows from; None for a stated category."""

    text: str
    fact: Fact | None = None

    @property
    def kind(self) -> str:
        if self.fact is None:
            return "category"
        return str(self.fact.values.get("aspect", self.fact.kind.value))


def find_strategies(context: ReflectionContext, facts: Sequence[Fact]) -> list[Strategy]:
    """The strategies for other tasks: corrected calls, the stated category, repeated calls. Those
    from a comparison of attempts are `find_differences`.
    """
    language = context_language(context)
    found = [*_from_corrections(facts, language)]
    if context.outcome is OutcomeType.SUCCESS:
        return found
    corrected = {str(each.fact.values["tool"]) for each in found if each.fact}
    category = context.error.error_category if context.error else None
    is_timeout = category is ErrorCategory.TIMEOUT_ERROR
    if category and not (is_timeout and any(True for _ in facts_of(facts, FactKind.RETRIED_CALL))):
        rule = render(language, "strategy_category", category.value)
        found += [Strategy(rule)] if rule else []
        if is_timeout:
            return found
    return [*found, *_from_repetitions(facts, language, corrected)]


def _from_corrections(facts: Iterable[Fact], language: str) -> Iterator[Strategy]:
    """One for each tool and its arguments. Not for another command or program: that is another
    text, not another argument.
    """
    known: set[tuple[str, ...]] = set()
    for fact in facts_of(facts, FactKind.CORRECTED_CALL):
        values = fact.values
        changes: list[dict[str, str]] = values["changes"]
        names: list[str] = [c["name"] for c in changes]
        if not changes or not set(names).isdisjoint(COMMAND_ARGUMENTS):
            continue
        if not all(is_safe_name(name) for name in [values["tool"], *filter(None, names)]):
            continue
        if (key := (values["tool"], *names)) in known:
            continue
        known.add(key)
        source: Mapping[str, str] = values["source"] or {}
        message = "" if is_exit_code(values["message"]) else safe_quotation(values["pattern"])
        more = {
            "message": message.rstrip(" .。"),
            "names": list(filter(None, names)),
            "source_tool": source.get("tool", ""),
        }
        yield Strategy(render(language, "strategy_corrected", {**values, **more}), fact)


def _from_repetitions(
    facts: Iterable[Fact], language: str, corrected: Collection[str]
) -> Iterator[Strategy]:
    """At most one for calls that failed and one for calls without another response. Not for
    `corrected` tools, and not for tests: those that fail again call for another program, not for
    another call.
    """
    found: dict[str, Fact] = {}
    for fact in facts_of(facts, FactKind.REPEATED_CALL):
        values = fact.values
        is_enough = values["has_failed"] or values["count"] >= _MIN_SAME_RESPONSES
        is_known = values["is_check"] or values["changes_later"] or values["tool"] in corrected
        if is_enough and not is_known:
            found.setdefault(render(language, "strategy_repeated", values), fact)
    for rule, fact in found.items():
        yield Strategy(rule, fact)


def find_differences(language: str, facts: Iterable[Fact]) -> list[Strategy]:
    """The strategies for the next attempt at the same task: tools, arguments and the order of
    calls. A tool that only failed attempts called is named only if it is known to change something.
    """
    found: dict[str, Strategy] = {}
    for fact in facts_of(facts, FactKind.DIFFERENCE):
        values = fact.values
        names = [values.get(name, "") for name in ("tool", "first", "second")]
        if values["aspect"] not in ("tool", "argument", "order") or not all(
            is_safe_name(name) for name in filter(None, names)
        ):
            continue
        if values.get("side") == "failed" and not values["writes"]:
            continue
        pairs = _pairs(values) if values["aspect"] == "argument" else []
        if values["aspect"] == "argument" and not pairs:
            continue
        text = render(language, "strategy_difference", {**values, "pairs": pairs})
        found.setdefault(text, Strategy(text, fact))
    return list(found.values())


def _pairs(values: Any) -> list[str]:
    """`name=value` of the arguments of the successful attempts; none if one is a long text."""
    changes = values["changes"]
    pairs = [f"{c['name']}={c['successful']}" for c in changes if c["name"] and c["successful"]]
    is_short = len(pairs) == len(changes) == len(safe_quotations(pairs)) and len(pairs) <= 4
    return pairs if is_short else []
