"""How a run differs from the right answer, as sentences for a model; part of `facts.py`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from memory_api.reflection.event_text import to_json
from memory_api.trace_analysis.arguments import (
    ArgumentChange,
    as_mapping,
    format_call,
    is_calculation,
    is_named,
)
from memory_api.trace_analysis.findings import Findings
from memory_api.trace_analysis.ground_truth import (
    MAX_RATING,
    ActionDeviation,
    compare_calls,
    expected_actions,
    expected_outputs,
    find_ratings,
    missing_outputs,
    number_of,
    states_answer,
)
from memory_api.trace_analysis.parser import ParsedTrace

_MAX_PER_KIND = 6
_MAX_CALL_LENGTH = 240


def recorded_result(ground_truth: Any) -> str:
    """What the client recorded about the result, with the scale of its ratings; '' for a right
    answer.
    """
    if ground_truth is None or states_answer(ground_truth):
        return ""
    result = as_mapping(ground_truth)
    ratings = find_ratings(result)
    others = [
        name
        for name, value in result.items()
        if name not in ratings and number_of(value) is not None
    ]
    lines = [to_json(ground_truth)]
    if ratings:
        names = ", ".join(ratings)
        lines.append(f"{names}: a rating from 1 (worst) to {MAX_RATING} (best).")
    if others:
        lines.append(f"The client stated no scale for {', '.join(others)}.")
    return "\n".join(lines)


def right_answer_facts(trace: ParsedTrace, findings: Findings, ground_truth: Any) -> Iterator[str]:
    """The calls and outputs of the right answer that the run has, lacks or has otherwise."""
    yield from _right_calls(trace, ground_truth)
    yield from (_deviation(item) for item in findings.action_deviations)
    yield from _expected_outputs(trace, ground_truth)


def _right_calls(trace: ParsedTrace, ground_truth: Any) -> Iterator[str]:
    """Whether the right answer lists no call, or only calls that the run made."""
    if expected_actions(ground_truth) == []:
        yield "The right answer lists no call. Calls of tools that only read are not compared."
        return
    comparison = compare_calls(trace, ground_truth)
    if comparison and 0 < comparison.expected_count == comparison.made_count:
        yield (
            "The run made all calls of the right answer with equal arguments "
            f"({comparison.expected_count})."
        )


def _deviation(item: ActionDeviation) -> str:
    if item.kind == "missing":
        call = format_call(item.tool, "", item.arguments, _MAX_CALL_LENGTH)
        return f"The right answer contains a call that the run did not make: {call}."
    if item.kind == "extra" or not item.changes:
        return f"The right answer does not contain the call {item.event_id}: {item.call}."
    changes = describe_changes(item.changes, "given", "expected")
    what = ", which only calculates," if is_calculation(item.arguments) else ""
    return (
        f"The call {item.event_id} of `{item.tool}`{what} differs from the right answer: {changes}."
    )


def _expected_outputs(trace: ParsedTrace, ground_truth: Any) -> Iterator[str]:
    """Which outputs that the user must be told are in no message, and that all others are."""
    missing = missing_outputs(trace, ground_truth)
    for output in missing[:_MAX_PER_KIND]:
        yield f"No message to the user contains the expected output “{output}”."
    told = [output for output in expected_outputs(ground_truth) if output not in missing]
    if told and trace.reply_positions:
        outputs = ", ".join(f"“{output}”" for output in told[:_MAX_PER_KIND])
        yield f"Messages to the user contain the expected output {outputs}."


def describe_changes(changes: Iterable[ArgumentChange], before: str, after: str) -> str:
    """`before` and `after` name the two calls, for example "given" and "expected"."""
    parts: list[str] = []
    changes = list(changes)
    only = "only " if len(changes) == 1 else ""
    for change in changes[:_MAX_PER_KIND]:
        old = "not given" if change.before is None else change.before or "(empty)"
        new = "not given" if change.after is None else change.after or "(empty)"
        if change.name == "" and not (change.before and change.after):
            word = "with" if change.before else "without"
            other = "without" if change.before else "with"
            parts.append(f"{before} {word} “{change.before or change.after}”, {after} {other} it")
        elif is_named(change) or change.name == "":
            label = f"{change.name}: " if change.name else ""
            parts.append(f"{label}{before} {old}, {after} {new}")
        else:
            parts.append(f"{only}the {change.name.strip('~')} of the text differs")
    return "; ".join(parts)
