"""Which runs count as handled in the same way."""

from __future__ import annotations

from typing import Any

from memory_api.evaluation.reflection_policy import call_sequence
from memory_api.traces.schemas import Event, EventType
from tests.support.cases import each_case


def events(*tools: str, **last: Any) -> list[Event]:
    calls = [Event(event_type=EventType.TOOL_CALL, tool_name=name, content="{}") for name in tools]
    done = Event(event_type=EventType.TOOL_RESPONSE, tool_name=tools[-1] if tools else None,
                 content="done", **last)  # fmt: skip
    return [*calls, done]


@each_case(
    ("one", "other", "same"),
    [
        (("find", "book"), ("find", "book"), True),
        (("find", "find", "find", "book"), ("find", "book"), True),
        (("book", "find"), ("find", "book"), False),
        (("find", "book", "find"), ("find", "book"), False),
        (("findbook",), ("find", "book"), False),
        ((), (), True),
        ((), ("find",), False),
    ],
)
def test_names_in_order(one: tuple[str, ...], other: tuple[str, ...], same: bool) -> None:
    assert (call_sequence(events(*one)) == call_sequence(events(*other))) is same


@each_case(
    "failure",
    [
        {"error": {"message": "no"}},
        {"metadata": {"is_error": True}},
        {"metadata": {"status_code": 500}},
    ],
)
def test_run_with_a_failed_call_has_none(failure: dict[str, Any]) -> None:
    assert call_sequence(events("find", "book", **failure)) is None


def test_run_with_an_error_event_has_none() -> None:
    error = Event(event_type=EventType.ERROR_EVENT, content="out of memory")
    assert call_sequence([*events("find"), error]) is None
