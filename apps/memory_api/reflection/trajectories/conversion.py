"""Converts a trajectory to the events of a trace (the question, the reasoning steps, the answer),
and the rules of a reflection to insights. No I/O.
"""

from __future__ import annotations

from memory_api.reflection.model_output import ACTIONS
from memory_api.reflection.schemas import ReflectionResult
from memory_api.reflection.trajectories.schemas import Insight, Trajectory
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.answer_comparison import compare_answers
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


def trajectory_error(trajectory: Trajectory) -> ErrorInfo | None:
    message = trajectory.error_message
    return ErrorInfo.model_validate(message) if message else None


def to_insight(context: ReflectionContext, result: ReflectionResult | None, rule: str) -> Insight:
    """One rule of a reflection as an insight. Without a model, no root cause is known, and the rule
    is not divided into condition and action.
    """
    root_cause = (result.root_cause or "") if result else ""
    actions: dict[str, str] = result.metadata.get(ACTIONS, {}) if result else {}
    error = context.error.error_message if context.error else ""
    if not error and context.outcome is not OutcomeType.SUCCESS:
        error = root_cause
    return Insight(
        reasoning=(result.explanation or result.reflection_text) if result else "",
        error_identification=error,
        root_cause_analysis=root_cause,
        correct_approach=actions.get(rule, rule),
        key_insight=rule,
    )
