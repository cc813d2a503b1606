"""Run all detectors on a trace and select the events that explain its outcome. Pure and
deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from memory_api.text.excerpts import excerpt, first_sentence
from memory_api.trace_analysis.context import Attempt, ReflectionContext
from memory_api.trace_analysis.decisive_step import StepEvidence, rank_steps
from memory_api.trace_analysis.detectors.agents import (
    find_repeated_messages,
    find_team,
    find_unresolved_outputs,
)
from memory_api.trace_analysis.detectors.answers import (
    find_failed_assertions,
    find_final_answer,
    find_missing_outputs,
)
from memory_api.trace_analysis.detectors.attempts import (
    contrast_attempts,
    find_repeated_attempts,
)
from memory_api.trace_analysis.detectors.claims import (
    Conversation,
    find_answer_origin,
    find_omitted_constraint,
    find_unsupported_statements,
)
from memory_api.trace_analysis.detectors.derivation import (
    find_answer_steps,
    find_ignored_objection,
    find_own_values,
    find_passed_over,
    find_stalled_call,
    find_unsupported_inputs,
)
from memory_api.trace_analysis.detectors.dialogue import find_dialogue
from memory_api.trace_analysis.detectors.hand_offs import find_divergences
from memory_api.trace_analysis.detectors.outputs import (
    find_repeated_results,
    find_slowest_call,
    find_truncated_outputs,
    find_unused_results,
)
from memory_api.trace_analysis.detectors.provenance import (
    find_argument_origins,
    find_lookup_hops,
)
from memory_api.trace_analysis.detectors.refusals import (
    find_refusals,
    find_unconfirmed_changes,
)
from memory_api.trace_analysis.detectors.repetition import (
    find_failure_streaks,
    find_repaired_calls,
    find_repeated_calls,
)
from memory_api.trace_analysis.detectors.tables import find_misread_values
from memory_api.trace_analysis.detectors.tool_errors import find_crash, find_failed_calls
from memory_api.trace_analysis.findings import (
    Findings,
    has_wrong_answer,
    last_unrepaired_failure,
)
from memory_api.trace_analysis.ground_truth import find_deviations
from memory_api.trace_analysis.parser import ParsedTrace, parse_trace, select_vocabulary
from memory_api.traces.schemas import EventType, OutcomeType

MAX_SOURCE_EVENTS = 5


def source_events(findings: Findings, outcome: OutcomeType) -> list[str]:
    """IDs of the events that explain the outcome, most important first; at most
    `MAX_SOURCE_EVENTS`.
    """
    event_ids = (
        _success_event_ids(findings)
        if outcome is OutcomeType.SUCCESS
        else _failure_event_ids(findings)
    )
    slow = findings.slowest_call if outcome is OutcomeType.TIMEOUT else None
    if slow and slow.is_dominant and not findings.decisive_event_ids:
        event_ids.insert(0, slow.event_id)
    event_ids.append(
        findings.last_call_event_id or findings.last_reply_event_id or findings.last_event_id
    )
    return list(dict.fromkeys(x for x in event_ids if x))[:MAX_SOURCE_EVENTS]


def _failure_event_ids(findings: Findings) -> list[str | None]:
    event_ids: list[str | None] = [*findings.decisive_event_ids]
    if findings.crash:
        crash_ids = [findings.crash.preceding_call_event_id, findings.crash.event_id]
        event_ids += crash_ids if findings.crash.is_of_call else crash_ids[::-1]
    deviation_ids = [d.event_id for d in findings.action_deviations if d.event_id]
    event_ids += deviation_ids
    if (findings.action_deviations and not deviation_ids) or findings.missing_outputs:
        event_ids += [refusal.event_id for refusal in reversed(findings.refusals)]
        event_ids += [output.event_id for output in findings.missing_outputs]
    if findings.final_answer and has_wrong_answer(findings):
        expected_event_id = (
            findings.final_answer.expected_answer_event_id
            if findings.final_answer.given_answer
            else None
        )
        event_ids += [
            findings.final_answer.event_id if findings.final_answer.given_answer else None,
            findings.final_answer.reasoning_event_id,
            expected_event_id,
        ]
    for streak in findings.failure_streaks:
        event_ids += [streak.event_id, *streak.event_ids[1:3]]
    repeats = [repeat.event_id for repeat in findings.repeated_calls if repeat.failed_count][:2]
    if not _has_known_cause(findings):
        # Later calls build on the first write, and no error stopped it.
        event_ids.append(findings.first_write_event_id or next(iter(repeats), None))
        event_ids.append(findings.first_write_event_id or findings.latest_tool_event_id)
    event_ids += _call_event_ids(findings, repeats)
    event_ids += [refusal.event_id for refusal in findings.refusals[-1:]]
    return [*event_ids, findings.last_write_event_id]


def _call_event_ids(findings: Findings, repeats: list[str]) -> list[str | None]:
    """Failed calls, differences from another attempt, and what the user objected to."""
    event_ids: list[str | None] = []
    last_failure = last_unrepaired_failure(findings)
    if findings.ends_without_reply and findings.failed_calls:
        event_ids.append(findings.failed_calls[0].event_id)
    event_ids += repeats
    if last_failure:
        event_ids += [last_failure.event_id, last_failure.response_event_id]
    if findings.attempt_contrast:
        event_ids.append(findings.attempt_contrast.event_id)
    event_ids += [change.event_id for change in findings.unconfirmed_changes]
    if findings.dialogue:
        event_ids.append(findings.dialogue.reply_before_dissatisfaction_event_id)
        event_ids += [event_id for _, _, event_id in findings.dialogue.repeated_phrases]
    event_ids += [repair.event_id for repair in findings.repaired_calls]
    if not findings.repaired_calls:
        event_ids += [call.event_id for call in findings.failed_calls[-1:]]
    return event_ids


def _has_known_cause(findings: Findings) -> bool:
    """Whether the trace shows why the run failed."""
    last_failure = last_unrepaired_failure(findings)
    return bool(
        findings.crash
        or (last_failure and last_failure.failure_source == "tool")
        or findings.action_deviations
        or findings.missing_outputs
        or findings.failure_streaks
        or findings.ends_without_reply
        or (findings.final_answer and has_wrong_answer(findings))
    )


def _success_event_ids(findings: Findings) -> list[str | None]:
    event_ids: list[str | None] = []
    for repair in findings.repaired_calls[:2]:
        event_ids += [repair.event_id, repair.failed_event_id]
    if findings.attempt_contrast:
        event_ids.append(findings.attempt_contrast.event_id)
    event_ids += [hop.event_id for hop in findings.lookup_hops[:1]]
    if findings.argument_origin:
        event_ids.append(findings.argument_origin.event_id)
    return [
        *event_ids,
        findings.last_write_event_id,
        *(refusal.event_id for refusal in findings.refusals[-1:]),
    ]


_MAX_SEQUENCE_LENGTH = 8
_QUESTION_ENDINGS = ("?", "？", "か。", "か？")


def analyze_trace(
    context: ReflectionContext,
    *,
    attempts: Sequence[Attempt] = (),
    ground_truth: Any = None,
    test_report: str | None = None,
    without_dataset: str | None = None,
) -> Findings:
    """Analyzes a trace. `attempts` are earlier attempts at the same task, oldest first.

    `ground_truth` is the expected answer, or a mapping with `answer`, `actions` (name, kwargs),
    `outputs`, or ratings by criterion. Other shapes are ignored. `without_dataset`: the
    vocabularies written on this data set are left out.
    """
    trace = parse_trace(
        context.events,
        context.task_description,
        context.task_goal,
        context.tools,
        vocabulary=select_vocabulary(context.events, context.task_description, without_dataset),
    )
    is_success = context.outcome is OutcomeType.SUCCESS
    last_call = trace.calls[-1] if trace.calls else None
    writes = [
        call
        for call in trace.calls
        if call.writes and not call.failure_message and call.is_correct is None
    ]
    deviations = () if is_success else find_deviations(trace, ground_truth)
    wrong_event_ids = {item.event_id for item in deviations if item.event_id}
    first_write, last_write = (writes[0], writes[-1]) if writes else (None, None)
    findings = Findings(
        language=trace.language,
        task=trace.task,
        call_count=len(trace.calls),
        failed_call_count=sum(1 for call in trace.calls if call.failure_message),
        tool_sequence=_tool_sequence(trace),
        first_calls=tuple(call.summary for call in trace.calls[:5]),
        last_call=last_call.summary if last_call else None,
        last_call_event_id=last_call.event_id if last_call else None,
        last_event_id=trace.event_ids[-1] if trace.event_ids else None,
        last_failure_message=last_call.failure_message if last_call else "",
        closing_message=_closing_message(trace),
        last_reply_event_id=trace.event_ids[trace.reply_positions[-1]]
        if trace.reply_positions
        else None,
        latest_tool_event_id=_first_call_of_latest_tool(trace),
        first_write=first_write.summary if first_write else None,
        first_write_event_id=first_write.event_id if first_write else None,
        write_count=len(writes),
        last_write=last_write.summary if last_write else None,
        last_write_event_id=last_write.event_id if last_write else None,
        has_replies=bool(trace.reply_positions),
        ends_without_reply=_ends_without_reply(trace),
        failed_calls=find_failed_calls(trace),
        repeated_calls=find_repeated_calls(trace),
        failure_streaks=find_failure_streaks(trace),
        repaired_calls=find_repaired_calls(trace, wrong_event_ids),
        refusals=find_refusals(trace),
        unconfirmed_changes=() if is_success else find_unconfirmed_changes(trace),
        final_answer=find_final_answer(trace, ground_truth),
        action_deviations=deviations,
        missing_outputs=() if is_success else find_missing_outputs(trace, ground_truth),
        failed_assertions=find_failed_assertions(test_report),
        crash=find_crash(trace),
        slowest_call=find_slowest_call(trace),
        attempt_contrast=contrast_attempts(trace, context.outcome, attempts),
        repeated_attempt=find_repeated_attempts(trace, context.outcome, attempts),
        argument_origin=find_argument_origins(trace),
        lookup_hops=find_lookup_hops(trace),
        dialogue=find_dialogue(trace, ground_truth),
        earlier_lesson=excerpt(trace.content_at(trace.lesson_positions[-1]), 120)
        if trace.lesson_positions
        else None,
        earlier_failure_count=sum(
            1
            for attempt in attempts
            if attempt.outcome not in (OutcomeType.SUCCESS, OutcomeType.PARTIAL)
        ),
        earlier_success_count=sum(
            1 for attempt in attempts if attempt.outcome is OutcomeType.SUCCESS
        ),
        tools=tuple(dict.fromkeys(call.tool for call in trace.calls if call.tool)),
        repeated_results=find_repeated_results(trace),
        unused_results=() if is_success or trace.steps else find_unused_results(trace),
        truncated_outputs=find_truncated_outputs(trace),
    )
    return _with_team(findings, trace, is_success) if trace.steps else findings


def _with_team(findings: Findings, trace: ParsedTrace, is_success: bool) -> Findings:
    """The findings with those about the agents of the run."""
    steps = trace.steps
    run = Conversation(steps, trace.full_task)
    origin = find_answer_origin(run, trace.vocabulary)
    unsupported = find_unsupported_statements(run)
    unresolved = find_unresolved_outputs(steps)
    omitted = find_omitted_constraint(run, trace.full_task)
    repeated = find_repeated_messages(steps)
    expected = findings.final_answer.expected_answer if findings.final_answer else None
    divergences = (
        *find_divergences(run, trace.vocabulary),
        *find_misread_values(steps),
        *find_unsupported_inputs(run, trace.vocabulary),
        *filter(
            None,
            (
                find_passed_over(run, origin, expected),
                find_ignored_objection(run, origin, trace.vocabulary),
                find_stalled_call(steps),
            ),
        ),
    )
    answer = find_answer_steps(run, origin)
    own_values = find_own_values(run, answer.computed)
    evidence = StepEvidence(
        divergences, answer, own_values, unsupported, unresolved, omitted, repeated
    )
    return replace(
        findings,
        team=find_team(steps),
        answer_origin=origin,
        unsupported_statements=unsupported,
        unresolved_outputs=unresolved,
        omitted_constraint=omitted,
        repeated_messages=repeated,
        divergences=() if is_success else divergences,
        decisive_event_ids=() if is_success else rank_steps(steps, evidence),
    )


def _tool_sequence(trace: ParsedTrace) -> tuple[tuple[str, int], ...]:
    """Tools in order, with the number of consecutive calls."""
    sequence: list[tuple[str, int]] = []
    for call in trace.calls:
        if sequence and sequence[-1][0] == call.tool:
            sequence[-1] = (call.tool, sequence[-1][1] + 1)
        elif len(sequence) < _MAX_SEQUENCE_LENGTH:
            sequence.append((call.tool, 1))
        else:
            break
    return tuple((tool, count) for tool, count in sequence if tool)


def _first_call_of_latest_tool(trace: ParsedTrace) -> str | None:
    """The ID of the first successful call of the tool whose first call comes last."""
    first_calls: dict[str, str] = {}
    for call in trace.calls:
        if call.arguments and not call.failure_message and call.is_correct is None:
            first_calls.setdefault(call.tool, call.event_id)
    return list(first_calls.values())[-1] if len(first_calls) > 1 else None


def _ends_without_reply(trace: ParsedTrace) -> bool:
    """Whether no message or answer follows the last call."""
    if not trace.calls:
        return False
    last_call = trace.calls[-1]
    if last_call.is_correct is not None or (
        trace.reply_positions and trace.reply_positions[-1] > last_call.position
    ):
        return False
    return trace.events[-1].event_type in (EventType.TOOL_CALL, EventType.TOOL_RESPONSE)


def _closing_message(trace: ParsedTrace) -> str:
    """The first sentence of the last message that is neither a question nor a courtesy."""
    for position in reversed(trace.reply_positions[-4:]):
        text = trace.content_at(position)
        line = first_sentence(text, 150)
        if (
            len(text.strip()) > 40
            and not line.endswith(_QUESTION_ENDINGS)
            and not trace.vocabulary.match("courtesy", line.lstrip(" !,.、。"))
        ):
            return line
    return ""
