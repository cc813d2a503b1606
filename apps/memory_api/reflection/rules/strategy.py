"""Selects the strategy of a run, if any. Independent of the language."""

from __future__ import annotations

import re

from memory_api.reflection.rules.language import StrategyLanguage
from memory_api.text.excerpts import fold_for_comparison
from memory_api.trace_analysis.arguments import is_named
from memory_api.trace_analysis.exit_codes import COMMAND_ARGUMENTS, is_check
from memory_api.trace_analysis.failures import is_exit_code
from memory_api.trace_analysis.findings import (
    AttemptContrast,
    FailureStreak,
    FinalAnswer,
    Findings,
    RepairedCall,
    has_wrong_answer,
    last_unrepaired_failure,
)
from memory_api.trace_analysis.ground_truth import ActionDeviation
from memory_api.traces.schemas import OutcomeType

_LIST = re.compile(r"[,;、\n]| and | or ")
_TRANSIENT_KINDS = {"timeout", "network", "rate_limit"}
"""An unchanged call may succeed later."""
_AGENT_KINDS = {"parse", "model", "network", "rate_limit"}
"""Errors that the agent itself can have; advice on the others is about a tool call."""


def choose_strategy(f: Findings, outcome: OutcomeType, say: StrategyLanguage) -> str | None:
    """One strategy from the strongest evidence; None if the findings support none."""
    if outcome is OutcomeType.SUCCESS:
        return _from_success(f, say)
    if f.repeated_attempt and not f.action_deviations:
        return say.start_differently(f.repeated_attempt)
    mistake = _from_mistake(f, say)
    if mistake or f.team:
        return mistake or _from_team(f, say)
    return _from_struggle(f, say) or _from_conversation(f, say)


def _from_team(f: Findings, say: StrategyLanguage) -> str | None:
    """A guess after failed code, what the decisive step departs from, an answer without a source,
    or the same step again and again.
    """
    if any(output.next_event_id for output in f.unresolved_outputs):
        return say.resolve_failed_code()
    for item in f.divergences:
        if item.event_id in f.decisive_event_ids[:1] and (rule := say.after_divergence(item.kind)):
            return rule
    origin = f.answer_origin
    if origin and f.team and f.team.code_count and origin.kind == "message":
        return None if origin.output_event_id else say.verify_answer()
    if any(message.count > 2 for message in f.repeated_messages):
        return say.change_repeated_step()
    return None


def _from_mistake(f: Findings, say: StrategyLanguage) -> str | None:
    if f.crash:
        return _crash(f, say)
    if f.failed_assertions:
        return say.run_failing_test(f.failed_assertions[0])
    if f.final_answer and has_wrong_answer(f) and f.final_answer.given_answer and not f.team:
        return _answer(f, f.final_answer, say)
    if f.action_deviations:
        return _departure(f, say)
    figures = [u for u in f.missing_outputs if re.search(r"\d", u.expected_output)]
    return say.state_figure(figures[0]) if figures else None


def _crash(f: Findings, say: StrategyLanguage) -> str | None:
    crash = f.crash
    if crash is None:
        return None
    if crash.expected_type and crash.actual_type:
        return say.convert(crash)
    if crash.is_of_call:
        return say.avoid_error(crash.kind, crash.preceding_call or "", crash.message, False)
    kind = "parse" if crash.kind == "syntax" else crash.kind
    return say.avoid_error(kind, "", crash.message, False) if kind in _AGENT_KINDS else None


def _answer(f: Findings, a: FinalAnswer, say: StrategyLanguage) -> str | None:
    if a.relation_to_expected in {"same", "contains_expected", "part_of_expected"}:
        return None if _LIST.search(a.given_answer) else say.exact_form(a)
    if a.expected_answer_event_id:
        return say.weigh_candidates(a)
    if a.unsearched_names:
        return say.search_name(a)
    if not f.call_count:
        return say.verify_answer()
    is_named = a.is_correct is not None and not re.search(r"\d", a.given_answer)
    return say.read_first(a) if is_named and a.is_searched and not a.given_answer_event_id else None


def _departure(f: Findings, say: StrategyLanguage) -> str | None:
    first: ActionDeviation = f.action_deviations[0]
    if first.kind == "changed" and first.changes:
        return say.derive_arguments(first)
    missing = [d for d in f.action_deviations if d.kind == "missing"]
    if missing and first.event_id in {r.event_id for r in f.refusals}:
        return say.before_declining(missing[0])
    if first.kind == "extra":
        return say.check_before_change(first)
    done = f.last_write is not None and not any(r.kind == "handed_over" for r in f.refusals)
    if f.refusals and not done:
        return say.before_declining(missing[0] if missing else first)
    # A request of which the only call is missing has no parts.
    return say.all_parts(missing) if done or len(missing) > 1 else None


def _from_struggle(f: Findings, say: StrategyLanguage) -> str | None:
    if f.failure_streaks and (rule := _streak(f, f.failure_streaks[0], say)):
        return rule
    if f.attempt_contrast and (rule := _contrast(f, f.attempt_contrast, say)):
        return rule
    return _failure(f, say) or next(
        (rule for retry in f.repaired_calls if (rule := _retry(retry, say))), None
    )


def _retry(retry: RepairedCall, say: StrategyLanguage) -> str | None:
    """What to change after a failure; nothing if the failure has no message. Another command, query
    or text is not another argument of the same call: only the kind of its error can tell what to
    do.
    """
    if is_exit_code(retry.message):
        return None
    names = {change.name for change in retry.argument_changes}
    named = [change for change in retry.argument_changes if is_named(change)]
    if names & COMMAND_ARGUMENTS or any(len((c.after or "").split()) > 3 for c in named):
        if retry.kind == "invalid":
            return None
        return say.avoid_error(retry.kind, retry.tool, retry.message, False)
    return say.change_arguments(retry)


def _streak(f: Findings, streak: FailureStreak, say: StrategyLanguage) -> str | None:
    if streak.quoted_argument:
        return say.drop_quotes(streak.tool)
    if streak.untried_alternatives:
        return say.use_suggestion(streak.tool, streak.untried_alternatives)
    kind = next((x.kind for x in f.failed_calls if x.event_id == streak.event_id), "")
    is_search = kind == "missing" and len(streak.tried_arguments) > 1
    return say.stop_rephrasing(streak) if is_search and not streak.is_reported else None


def _failure(f: Findings, say: StrategyLanguage) -> str | None:
    last = last_unrepaired_failure(f)
    if last and last.ungrounded_arguments:
        return say.look_up_value(last)
    failing = next(
        # Tests that fail again call for another program, not for another call.
        (r for r in f.repeated_calls if r.failed_count == r.count and not is_check(r.call)),
        None,
    )
    if failing and not (last and last.kind in _TRANSIENT_KINDS):
        return say.no_repeat(failing)
    if last is None:
        return None
    what = last.tool or last.call
    if last.alternatives:
        return say.use_suggestion(what, last.alternatives)
    if last.failure_source != "tool" or is_exit_code(last.message):
        return None
    if last.kind == "failed" and is_check(last.call):
        return None
    return say.avoid_error(last.kind, what, last.message, f.failed_call_count > 1)


def _from_conversation(f: Findings, say: StrategyLanguage) -> str | None:
    if f.unconfirmed_changes:
        return say.ask_first(f.unconfirmed_changes[0])
    return say.vary_phrases() if f.dialogue and f.dialogue.repeated_phrases else None


def _from_success(f: Findings, say: StrategyLanguage) -> str | None:
    for retry in f.repaired_calls:
        if retry.argument_changes and (rule := _retry(retry, say)):
            return rule
    if f.attempt_contrast and (rule := _contrast(f, f.attempt_contrast, say)):
        return rule
    if f.lookup_hops and f.final_answer and f.final_answer.is_correct:
        return say.follow_name(f.lookup_hops)
    return None


def _contrast(f: Findings, c: AttemptContrast, say: StrategyLanguage) -> str | None:
    """The first difference of: an argument, quotation marks, a tool that only failed attempts used,
    a tool that only successful attempts used."""
    if c.differing_arguments:
        return say.follow_success(c)
    if c.tool_without_quotes:
        return say.drop_quotes(c.tool_without_quotes)
    if c.other_answer and f.final_answer and not c.calls_only_in_this and not c.calls_only_in_other:
        return _same_pages(f.final_answer, c.other_answer, say)
    if c.write_tool_only_in_failed:
        return say.check_before_change(
            ActionDeviation("extra", None, c.write_tool_only_in_failed, "")
        )
    return say.follow_success(c)


def _same_pages(a: FinalAnswer, other: str, say: StrategyLanguage) -> str:
    """Both attempts made the same calls and gave different answers."""
    mine, theirs = fold_for_comparison(a.given_answer), fold_for_comparison(other)
    if mine in theirs or theirs in mine:
        return say.exact_form(a)
    return say.weigh_candidates(a)
