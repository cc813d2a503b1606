"""Selects and orders the findings that a reflection reports. Independent of the language."""

from __future__ import annotations

from dataclasses import replace

from memory_api.reflection.rules.language import NarrativeLanguage
from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.failures import is_exit_code
from memory_api.trace_analysis.findings import (
    AttemptContrast,
    FailedCall,
    FinalAnswer,
    Findings,
    Refusal,
    has_wrong_answer,
    last_unrepaired_failure,
)
from memory_api.traces.schemas import ErrorInfo, OutcomeType

MAX_SENTENCES = 5
MAX_CHARACTERS = 1_100


def compose_narrative(
    f: Findings,
    outcome: OutcomeType,
    error: ErrorInfo | None,
    words: NarrativeLanguage,
    *,
    outcome_is_known: bool = True,
) -> str:
    """The text of the reflection: task, outcome (if it is known), the deciding event, the evidence;
    '' if there is nothing to report. A result that no later event uses, or a call as the last
    event, says nothing about a run of unknown outcome, such as a session that goes on.
    """
    if not outcome_is_known:
        f = replace(f, unused_results=(), ends_without_reply=False)
    parts = narrative_sentences(f, outcome, error, words)
    if not parts:
        return ""
    if f.repeated_attempt and outcome is OutcomeType.SUCCESS and not f.failed_call_count:
        return ""
    opening = words.opening(f.task, outcome if outcome_is_known else None)
    text = opening
    for sentence in parts[:MAX_SENTENCES]:
        joined = text + words.space + sentence
        if len(joined) > MAX_CHARACTERS and text != opening:
            break
        text = joined
    return text


def narrative_sentences(
    f: Findings, outcome: OutcomeType, error: ErrorInfo | None, words: NarrativeLanguage
) -> list[str]:
    """The sentences of the reflection, the deciding event first; [] if nothing was found."""
    won = outcome is OutcomeType.SUCCESS
    found = _success(f, words) if won else _failure(f, outcome, error, words)
    return [sentence for sentence in found if sentence]


def _failure(
    f: Findings, outcome: OutcomeType, error: ErrorInfo | None, w: NarrativeLanguage
) -> list[str]:
    parts = _reported(f, error, w)
    if f.slowest_call and f.slowest_call.is_dominant and outcome is OutcomeType.TIMEOUT:
        parts.append(w.slow(f.slowest_call))
    if f.call_count or f.has_replies:
        parts += _deviations(f, w)
    if f.final_answer and has_wrong_answer(f) and f.final_answer.given_answer:
        parts += [w.answered(f.final_answer, False)] if f.team else _answer(f, f.final_answer, w)
    elif (
        f.ends_without_reply
        and f.call_count
        and not any(r.event_id == f.last_call_event_id for r in f.refusals)
    ):
        parts += [w.ending(f)]
    if f.team:
        parts += _team(f, w)
    else:
        reported = f.crash.message if f.crash else excerpt(error.error_message) if error else ""
        parts += _failed_calls(f, w, reported, len(parts) + (f.repeated_attempt is not None))
    if f.dialogue and not f.action_deviations and not f.missing_outputs:
        parts += [w.dialogue(f.dialogue)]
    if f.attempt_contrast and not (
        f.action_deviations
        and {d.tool for d in f.action_deviations}
        & {f.attempt_contrast.compared_tool, *_tools_of(f.attempt_contrast)}
    ):
        parts.append(w.contrast(f.attempt_contrast))
    parts += [w.unconfirmed(u) for u in f.unconfirmed_changes[:1]]
    parts += _outputs(f, w, bool(parts))
    if f.repeated_attempt:
        parts.insert(
            1, w.identical_attempts(f.repeated_attempt, False, f.earlier_lesson is not None)
        )
    return parts


def _team(f: Findings, w: NarrativeLanguage) -> list[str]:
    """What the agents did: the steps that rank first are reported first."""
    items: list[tuple[str, str]] = []
    if f.answer_origin:
        items.append((f.answer_origin.author_event_id, w.answer_origin(f.answer_origin)))
    items += [(d.event_id, w.divergence(d)) for d in f.divergences]
    items += [(u.event_id, w.unresolved(u)) for u in f.unresolved_outputs[:1]]
    stated = {d.event_id for d in f.divergences if d.kind in ("from_statement", "without_call")}
    unsupported = [u for u in f.unsupported_statements if u.event_id not in stated]
    items += [(u.event_id, w.unsupported(u)) for u in unsupported[:2]]
    items += [(m.event_id, w.repeated_message(m)) for m in f.repeated_messages[:1]]
    rank = {event_id: n for n, event_id in enumerate(f.decisive_event_ids)}
    items.sort(key=lambda item: rank.get(item[0], len(rank)))
    if f.omitted_constraint:
        items.append(("", w.omitted(f.omitted_constraint)))
    parts = [sentence for _, sentence in items]
    return [*parts[:3], w.team(f.team), *parts[3:]] if parts and f.team else parts


def _outputs(f: Findings, w: NarrativeLanguage, has_findings: bool) -> list[str]:
    """What the outputs show. An unused result says little by itself, unless it is the last one."""
    unused = [u for u in f.unused_results if has_findings or u.event_id == f.last_call_event_id]
    return [
        *(w.truncated(t) for t in f.truncated_outputs[:1]),
        *(w.repeated_result(r) for r in f.repeated_results[:1]),
        *(w.unused(u) for u in unused[-1:]),
    ]


def _reported(f: Findings, error: ErrorInfo | None, w: NarrativeLanguage) -> list[str]:
    """The error and the failing tests that the environment reports."""
    parts: list[str] = []
    if f.crash:
        parts.append(w.crash(f.crash))
    elif error and error.error_message:
        parts.append(w.reported_error(excerpt(error.error_message), f.last_event_id))
    if f.failed_assertions:
        parts.append(w.assertions(f.failed_assertions))
    return parts


def _answer(f: Findings, a: FinalAnswer, w: NarrativeLanguage) -> list[str]:
    parts = [w.answered(a, False)]
    if not f.call_count:
        parts.append(w.no_calls())
    elif a.relation_to_expected not in {
        "same",
        "contains_expected",
        "part_of_expected",
    }:
        if a.expected_answer_event_id:
            parts.append(w.answer_seen(a))
        elif a.is_searched:
            parts.append(w.answer_unseen(a))
    if a.reasoning:
        parts.append(w.reasoning(a))
    return parts


def _deviations(f: Findings, w: NarrativeLanguage) -> list[str]:
    parts: list[str] = []
    if f.action_deviations:
        handed = {r.event_id for r in f.refusals if r.kind == "handed_over"}
        parts.append(
            w.departures(
                [d for d in f.action_deviations if d.event_id not in handed] or f.action_deviations
            )
        )
        changed = next((d for d in f.action_deviations if d.kind != "missing"), None)
        retry = next(
            (
                r
                for r in f.repaired_calls
                if changed and r.event_id == changed.event_id and r.argument_changes
            ),
            None,
        )
        if retry:
            parts.append(w.retry_with_wrong_arguments(retry))
        refusal = _declined_instead(f)
        if refusal:
            parts.append(w.refusal(refusal))
    if f.missing_outputs:
        parts.append(w.missing_outputs(f.missing_outputs))
    return parts


def _declined_instead(f: Findings) -> Refusal | None:
    """The refusal, or the handover, whose text names a missing action."""
    stems = {
        part[:5].casefold()
        for d in f.action_deviations
        if d.kind == "missing"
        for part in d.tool.split("_")
        if len(part) > 3
    }
    if not stems:
        return None
    fitting = [
        r for r in f.refusals if any(s in f"{r.quote} {r.request}".casefold() for s in stems)
    ]
    only_missing = all(d.kind == "missing" for d in f.action_deviations)
    return (fitting or (list(f.refusals) if only_missing else [None]))[-1] if f.refusals else None


def _failed_calls(f: Findings, w: NarrativeLanguage, reported: str, before: int) -> list[str]:
    """Failed and repeated calls. `before` is the number of sentences before them, `reported` the
    error message that one of these quotes.
    """
    parts: list[str] = []
    for streak in f.failure_streaks[:1]:
        parts.append(w.streak(streak))
        if streak.quoted_argument or streak.untried_alternatives:
            parts.append(w.unused_suggestions(streak))
    quoted: set[str] = set()
    for repeat in f.repeated_calls[:1]:
        is_known = f.failure_streaks or repeat.message == reported
        ends = f.ends_without_reply and f.last_call_event_id in repeat.event_ids
        parts.append(w.repeat(replace(repeat, message="") if is_known or ends else repeat))
        quoted.update(repeat.event_ids if repeat.message else ())
    last = last_unrepaired_failure(f)
    if last and last.event_id in quoted:
        parts += [w.invented(last)] if last.ungrounded_arguments else []
    elif (
        last
        and not f.failure_streaks
        and before < 3
        and not (f.ends_without_reply and last.event_id == f.last_call_event_id)
    ):
        parts += _unrepaired(f, w, last, reported)
    if f.repaired_calls and not f.action_deviations and not f.failure_streaks:
        parts.append(w.retry(f.repaired_calls[-1]))
    return parts if parts or before else _overcome_failure(f, w)


def _unrepaired(f: Findings, w: NarrativeLanguage, last: FailedCall, reported: str) -> list[str]:
    """The last failure that no later call of its tool overcame."""
    parts: list[str] = []
    is_quoted = last.failure_source == "tool" and last.message == reported
    shown = replace(last, message="") if is_quoted else last
    told = {last.event_id, *(id for repeat in f.repeated_calls[:1] for id in repeat.event_ids)}
    others = [x for x in f.failed_calls if not x.tool_succeeded_later]
    more = sum(1 for x in others if x.event_id not in told)
    crash = f.crash if is_quoted and len(others) == 1 else None
    if not (
        crash
        and crash.event_id == f.last_event_id
        and crash.preceding_call_event_id == last.event_id
    ):  # else the sentence on the crash says all of it
        parts.append(w.unrepaired(shown, more))
    if last.ungrounded_arguments:
        parts.append(w.invented(last))
    return parts


def _overcome_failure(f: Findings, w: NarrativeLanguage) -> list[str]:
    """The last error that a tool reported, if nothing else was found: its tool succeeded later."""
    stated = [
        call
        for call in f.failed_calls
        if call.failure_source == "tool" and not is_exit_code(call.message)
    ]
    return [w.unrepaired(call, 0) for call in stated[-1:]]


def _success(f: Findings, w: NarrativeLanguage) -> list[str]:
    """What distinguishes a successful run; [] if nothing does, whatever else could be told."""
    parts: list[str] = []
    if f.final_answer and f.final_answer.is_correct:
        parts.append(w.answered(f.final_answer, True))
    if f.attempt_contrast:
        parts.append(w.contrast(f.attempt_contrast))
    parts += [w.retry(retry) for retry in f.repaired_calls[:2]] or [
        w.streak(s) for s in f.failure_streaks[:1]
    ]
    if f.dialogue:
        parts.append(w.dialogue(f.dialogue))
    if f.repeated_attempt:
        parts.insert(1, w.identical_attempts(f.repeated_attempt, True, False))
    if not any(parts):
        return []
    parts += _way(f, w)
    if f.final_answer and f.final_answer.reasoning and len(parts) == 1:
        parts.append(w.reasoning(f.final_answer))
    if f.call_count > 1:
        parts.append(w.path(f))
    if f.slowest_call and f.slowest_call.time_share >= 0.3:
        parts.append(w.slow(f.slowest_call))
    return parts


def _way(f: Findings, w: NarrativeLanguage) -> list[str]:
    """How the values of the deciding call were found."""
    if f.lookup_hops:
        return [w.hops(f.lookup_hops)]
    if f.argument_origin and not any(c.name for r in f.repaired_calls for c in r.argument_changes):
        return [w.origin(f.argument_origin)]
    return []


def _tools_of(c: AttemptContrast) -> set[str]:
    return {call.split("(", 1)[0] for call in (*c.calls_only_in_other, *c.calls_only_in_this)}
