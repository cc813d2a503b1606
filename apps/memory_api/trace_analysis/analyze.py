"""The facts of a trace. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pydantic import Field, field_validator

from memory_api.core.schemas import ResponseModel
from memory_api.trace_analysis.attempts import Attempt, compare_attempts
from memory_api.trace_analysis.calls import (
    find_corrected_calls,
    find_counts,
    find_exit_codes,
    find_failed_calls,
    find_repeated_calls,
    find_retried_calls,
)
from memory_api.trace_analysis.expectations import find_expectations, find_test_report
from memory_api.trace_analysis.facts import Fact
from memory_api.trace_analysis.message_facts import (
    find_end,
    find_error,
    find_unsourced_numbers,
    find_user_rules,
)
from memory_api.trace_analysis.parser import parse_trace
from memory_api.traces.schemas import ErrorInfo, Event, OutcomeType
from memory_api.traces.tools import ToolDefinition, Tools


class ReflectionContext(ResponseModel):
    """One trace to reflect on. `events` are in the order in which they happened. If the outcome is
    not known, `outcome` is `partial` and no text states it. `overruled_outcome` is what the client
    reported, if a check that it declared contradicts it.
    """

    events: list[Event]
    outcome: OutcomeType
    outcome_is_known: bool = True
    overruled_outcome: OutcomeType | None = None
    tenant_id: str
    project_id: str = "default"
    session_id: str | None = None
    error: ErrorInfo | None = None
    task_description: str | None = None
    task_goal: str | None = None
    generated_answer: str | None = None
    related_memory_ids: list[UUID] = Field(default_factory=list)
    tools: Tools = Field(default_factory=list[ToolDefinition])

    @property
    def known_outcome(self) -> OutcomeType | None:
        return self.outcome if self.outcome_is_known else None

    @property
    def outcome_text(self) -> str:
        """The outcome; both sides if a declared check overrules the client."""
        overruled = self.overruled_outcome
        note = f" by the declared check; the client reported {overruled}" if overruled else ""
        return f"{self.known_outcome or 'unknown'}{note}"

    @field_validator("session_id", mode="before")
    @classmethod
    def _uuid_to_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, UUID) else value


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
        *find_error(trace, context.error, context.outcome),
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
