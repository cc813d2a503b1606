"""Converts a trajectory to the events of a trace: the question, the reasoning steps, the answer.
No I/O.
"""

from __future__ import annotations

from memory_api.reflection.trajectories.schemas import Trajectory
from memory_api.trace_analysis.answer_comparison import compare_answers
from memory_api.trace_analysis.context import ReflectionContext
from memory_api.trace_analysis.junit import parse_junit
from memory_api.traces.schemas import ErrorInfo, Event, EventType, OutcomeType

STEP = "step"
"""In the metadata of an event: the number of the reasoning step, from 1."""


def trajectory_events(trajectory: Trajectory) -> list[Event]:
    steps = [
        Event(event_type=EventType.LLM_RESPONSE, content=text, metadata={STEP: number})
        for number, text in enumerate(trajectory.reasoning_steps, start=1)
    ]
    question = Event(event_type=EventType.USER_MESSAGE, content=trajectory.query)
    answer = Event(event_type=EventType.LLM_RESPONSE, content=trajectory.generated_answer)
    return [question, *steps, answer]


def trajectory_outcome(
    trajectory: Trajectory, ground_truth: str, test_report: str
) -> OutcomeType | None:
    """The outcome by JUnit XML; otherwise as the agent states it; otherwise by the ground
    truth, if the answer is the same or another number; None if it is unknown.
    """
    report = parse_junit(test_report)
    if report is not None and report.executed_count:
        return OutcomeType.FAILURE if report.failed else OutcomeType.SUCCESS
    if trajectory.status:
        return OutcomeType(trajectory.status)
    is_met = compare_answers(trajectory.generated_answer, ground_truth).is_met
    if is_met is None:
        return None
    return OutcomeType.SUCCESS if is_met else OutcomeType.FAILURE


def trajectory_context(
    trajectory: Trajectory, ground_truth: str, test_report: str
) -> ReflectionContext:
    """The trajectory as the rules engine analyzes it."""
    return ReflectionContext(
        events=trajectory_events(trajectory),
        outcome=trajectory_outcome(trajectory, ground_truth, test_report) or OutcomeType.PARTIAL,
        tenant_id="",
        error=trajectory_error(trajectory),
        task_description=trajectory.query or None,
    )


def trajectory_error(trajectory: Trajectory) -> ErrorInfo | None:
    message = trajectory.error_message
    return ErrorInfo.model_validate(message) if message else None
