"""A trajectory is a trace written in another way: the question, the steps of reasoning, the answer.
Pure.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from apps.memory_api.evaluation.evidence import compare, parse_test_report
from apps.memory_api.reflection.findings.assertions import find_assertions
from apps.memory_api.reflection.insights.schemas import Trajectory
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.traces.schemas import ErrorInfo, Event, EventType, OutcomeType

STEP = "step"
"""In the metadata of an event: it is a step of reasoning, by its number from 1."""


def events_of(trajectory: Trajectory) -> list[Event]:
    """The question, each step, the answer."""
    steps = [
        Event(event_type=EventType.LLM_RESPONSE, content=text, metadata={STEP: number})
        for number, text in enumerate(trajectory.reasoning_steps, start=1)
    ]
    asked = Event(event_type=EventType.USER_MESSAGE, content=trajectory.query)
    answer = Event(event_type=EventType.LLM_RESPONSE, content=trajectory.generated_answer)
    return [asked, *steps, answer]


def outcome_of(trajectory: Trajectory, ground_truth: str, test_report: str) -> OutcomeType | None:
    """How it went: what the tests say, else the right answer, else the agent; None when nobody
    knows.
    """
    report = parse_test_report(test_report)
    if report.bad or (not report.ran and find_assertions(test_report)):
        return OutcomeType.FAILURE
    if report.ran:
        return OutcomeType.SUCCESS
    if ground_truth.strip():
        relation = compare(trajectory.generated_answer, ground_truth).relation
        if relation != "unknown":
            return OutcomeType.SUCCESS if relation == "same" else OutcomeType.FAILURE
    return OutcomeType(trajectory.status) if trajectory.status else None


def context_of(trajectory: Trajectory, ground_truth: str, test_report: str) -> ReflectionContext:
    """The trajectory as rules read a run."""
    return ReflectionContext(
        events=events_of(trajectory),
        outcome=outcome_of(trajectory, ground_truth, test_report) or OutcomeType.PARTIAL,
        tenant_id="",
        error=error_of(trajectory),
        task_description=trajectory.query or None,
    )


def error_of(trajectory: Trajectory) -> ErrorInfo | None:
    said = trajectory.error_message
    return ErrorInfo.model_validate(said) if said else None


def identity(kind: str, content: Any) -> str:
    """A name for what was sent, the same whenever the same is sent again: it is looked at once."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()}"
