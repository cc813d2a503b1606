"""Spec 5, "Data Models": fields, defaults, ranges, enums, and the other spellings (S5.3, S5.11 to
S5.15)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from memory_api.reflection.schemas import ReflectionResult
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.traces.schemas import ErrorCategory, ErrorInfo, Event, EventType, OutcomeType
from tests.support.cases import each_case

EVENT = {"event_type": "tool_call", "content": "ls"}
NIGHT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CONTEXT = {"events": [EVENT], "outcome": "failure", "tenant_id": "t", "project_id": "p"}


def test_event_has_the_documented_fields() -> None:
    given = {
        "event_id": "e1",
        "event_type": "tool_response",
        "timestamp": "2026-01-02T03:04:05Z",
        "content": "42",
        "metadata": {"latency_ms": 50},
        "tool_name": "calculator",
        "error": {"message": "Timeout", "code": "QUERY_TIMEOUT"},
    }
    event = Event.model_validate(given)
    assert event.event_type is EventType.TOOL_RESPONSE
    assert event.timestamp == NIGHT
    assert {name: getattr(event, name) for name in given if name not in _READ} == {
        name: value for name, value in given.items() if name not in _READ
    }
    bare = Event.model_validate(EVENT)
    assert (bare.event_id, bare.timestamp, bare.tool_name, bare.error) == (None, None, None, None)
    assert bare.metadata == {}


_READ = {"event_type", "timestamp"}


@each_case(
    ("given", "kept"),
    [
        ({"error": "Timeout"}, {"error": {"message": "Timeout"}}),
        ({"error": ""}, {"error": None}),
        ({"metadata": None}, {"metadata": {}}),
        ({"timestamp": "2026-01-02T03:04:05"}, {"timestamp": NIGHT}),
        ({"timestamp": "2026-01-02T12:04:05+09:00"}, {"timestamp": NIGHT}),
    ],
)
def test_other_event_formats_are_converted(given: dict[str, Any], kept: dict[str, Any]) -> None:
    event = Event.model_validate(EVENT | given)
    assert {name: getattr(event, name) for name in kept} == kept


def test_types_of_events() -> None:
    assert {kind.value for kind in EventType} == {
        "tool_call",
        "tool_response",
        "llm_call",
        "llm_response",
        "user_message",
        "system_event",
        "error_event",
    }
    assert EventType("user_input") is EventType.USER_MESSAGE


def test_outcomes() -> None:
    assert {outcome.value for outcome in OutcomeType} == {
        "success",
        "failure",
        "partial",
        "timeout",
        "error",
    }


def test_categories_of_errors() -> None:
    assert {category.value for category in ErrorCategory} == {
        "tool_error",
        "timeout_error",
        "validation_error",
        "llm_error",
        "network_error",
        "permission_error",
        "unknown_error",
    }


@pytest.mark.parametrize(
    "given",
    [
        {"error_category": "timeout_error", "error_message": "late", "context": {"query": "q"}},
        {"category": "timeout_error", "message": "late", "context": {"query": "q"}},
    ],
)
def test_both_error_formats_are_accepted(given: dict[str, Any]) -> None:
    error = ErrorInfo.model_validate(given)
    assert error.error_category is ErrorCategory.TIMEOUT_ERROR
    assert error.error_message == "late"
    assert error.context == {"query": "q"}


def test_error_may_be_a_text() -> None:
    error = ErrorInfo.model_validate("it broke")
    assert (error.error_category, error.error_message) == (ErrorCategory.UNKNOWN_ERROR, "it broke")
    assert error.context == {}


def test_context_has_the_documented_fields() -> None:
    session, related = uuid4(), [uuid4()]
    context = ReflectionContext.model_validate(
        CONTEXT
        | {
            "session_id": session,
            "error": {"error_category": "tool_error", "error_message": "m"},
            "task_description": "d",
            "task_goal": "g",
            "related_memory_ids": related,
        }
    )
    assert [event.content for event in context.events] == ["ls"]
    assert context.outcome is OutcomeType.FAILURE
    assert (context.tenant_id, context.project_id) == ("t", "p")
    assert context.session_id == str(session)
    assert context.error is not None
    assert context.error.error_category is ErrorCategory.TOOL_ERROR
    assert (context.task_description, context.task_goal) == ("d", "g")
    assert context.related_memory_ids == related


def test_optional_context_fields() -> None:
    context = ReflectionContext.model_validate(CONTEXT)
    assert (context.session_id, context.error) == (None, None)
    assert (context.task_description, context.task_goal) == (None, None)
    assert context.related_memory_ids == []


@pytest.mark.parametrize("missing", ["events", "outcome", "tenant_id"])
def test_required_context_fields(missing: str) -> None:
    with pytest.raises(ValidationError, match=missing):
        ReflectionContext.model_validate({k: v for k, v in CONTEXT.items() if k != missing})


def test_result_has_the_documented_fields_and_defaults() -> None:
    before = datetime.now(UTC)
    result = ReflectionResult(reflection_text="It broke.")
    assert result.strategy_text is None
    assert (result.importance, result.confidence) == (0.5, 0.5)
    assert (result.tags, result.source_event_ids, result.related_memory_ids) == ([], [], [])
    assert result.error_category is None
    assert result.metadata == {}
    assert before <= result.generated_at <= datetime.now(UTC)
    assert ReflectionResult.model_validate_json(result.model_dump_json()) == result


@each_case("name", ["importance", "confidence"])
@each_case("value", [-0.01, 1.01, float("nan"), float("inf"), "high", None])
def test_scores_are_between_0_and_1(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        ReflectionResult.model_validate({"reflection_text": "x", name: value})
    for edge in (0, 1):
        made = ReflectionResult.model_validate({"reflection_text": "x", name: edge})
        assert getattr(made, name) == edge
