"""Collect the facts of a trace. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory_api.trace_analysis.attempts import compare_attempts
from memory_api.trace_analysis.calls import (
    find_corrected_calls,
    find_counts,
    find_exit_codes,
    find_failed_calls,
    find_repeated_calls,
    find_retried_calls,
)
from memory_api.trace_analysis.context import Attempt, ReflectionContext
from memory_api.trace_analysis.expectations import find_expectations, find_test_report
from memory_api.trace_analysis.facts import Fact
from memory_api.trace_analysis.message_facts import (
    find_end,
    find_error,
    find_unsourced_numbers,
    find_user_rules,
)
from memory_api.trace_analysis.parser import parse_trace


def analyze_trace(
    context: ReflectionContext,
    *,
    attempts: Sequence[Attempt] = (),
    ground_truth: Any = None,
    test_report: str | None = None,
) -> list[Fact]:
    """The facts of a trace, the most telling kinds first. `attempts` are earlier attempts at the
    same task, oldest first.

    `ground_truth` is the expected answer, or a mapping with `answer`, `actions` (name, kwargs) or
    `outputs`. Other shapes are ignored.
    """
    trace = parse_trace(context.events, context.task_description, context.task_goal, context.tools)
    return [
        *find_counts(trace),
        *find_error(context, trace),
        *find_test_report(test_report),
        *find_expectations(trace, ground_truth, context.generated_answer),
        *find_user_rules(trace),
        *compare_attempts(trace, context.outcome, attempts, ground_truth),
        *find_corrected_calls(trace),
        *find_retried_calls(trace),
        *find_repeated_calls(trace),
        *find_failed_calls(trace),
        *find_exit_codes(trace),
        *find_unsourced_numbers(trace),
        *find_end(trace),
    ]
