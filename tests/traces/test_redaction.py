"""Looking at all texts of a trace at once misses nothing that a look at each would find."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.core.secret_redaction import redact_value
from memory_api.traces.redaction import count_redactions, redact_events, redact_trace
from memory_api.traces.schemas import CreateTraceRequest, ErrorInfo, Event, EventType

SECRETS = (
    "sk-proj-Zx81mQw02LkVn3Tb7Yc5Rd9EfGh4JkL6",
    "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "Bearer a1b2c3d4e5f6a1b2c3d4e5f6",
    "postgresql://user:hunter2x@host/db",
    'password = "Tr0ub4dor"',
    "パスワード：ほげ1234",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----",
)
PIECES = st.sampled_from(
    [
        *SECRETS,
        "password",
        "password:",
        "token =",
        '"',
        "'",
        "\n",
        " ",
        ",",
        "key",
        "x",
        "Tr0ub4dor",
    ]
)
TEXT = st.lists(PIECES, max_size=6).map("".join)
NAMES = st.sampled_from(["password", "api_key", "note", "token", "url"])
VALUES = st.recursive(
    TEXT | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.builds(
    lambda content, metadata, error: Event(
        event_type=EventType.TOOL_CALL, content=content, metadata=metadata, error=error
    ),
    TEXT,
    st.dictionaries(NAMES, VALUES, max_size=2),
    st.none() | st.dictionaries(NAMES, VALUES, max_size=2),
)
TRACES = st.builds(
    lambda events, goal, truth, metadata, error: CreateTraceRequest(
        events=events,
        task_goal=goal,
        ground_truth=truth,
        metadata=metadata,
        error=error,
        tools=[{"name": "note", "description": goal}],
    ),
    st.lists(EVENTS, min_size=1, max_size=3),
    TEXT,
    VALUES,
    st.dictionaries(NAMES, VALUES, max_size=2),
    st.none() | st.builds(lambda m, c: ErrorInfo(error_message=m, context={"c": c}), TEXT, VALUES),
)


def found_one_by_one(trace: CreateTraceRequest) -> Counter[str]:
    fields: list[Any] = [
        trace.task_goal,
        *(t.description for t in trace.tools),
        trace.ground_truth,
        trace.metadata,
    ]
    if trace.error:
        fields += [trace.error.error_message, trace.error.context]
    for event in trace.events:
        fields += [event.content, event.metadata, event.error]
    return sum((Counter(redact_value(field)[1]) for field in fields), Counter[str]())


@given(TRACES)
@settings(max_examples=100)
def test_joined_redaction_finds_every_secret(trace: CreateTraceRequest) -> None:
    found = found_one_by_one(trace)
    clean = redact_trace(trace)
    if found:
        assert clean.metadata["redacted"] == dict(found)
        assert not found_one_by_one(clean.model_copy(update={"metadata": {}}))
    else:
        assert clean is trace


@given(st.lists(EVENTS, max_size=3))
def test_events_are_redacted(events: list[Event]) -> None:
    found = sum((Counter(redact_value(e.content)[1]) for e in events), Counter[str]())
    kinds = Counter[str]()
    clean = redact_events(events, kinds)
    assert found <= kinds
    assert [e.event_type for e in clean] == [e.event_type for e in events]


def test_redaction_counts_are_summed_and_user_field_is_kept() -> None:
    assert count_redactions({"a": 1}, {}) == {"a": 1}
    assert count_redactions({"redacted": {"jwt": 2}}, {"jwt": 1, "password": 1}) == {
        "redacted": {"jwt": 3, "password": 1}
    }
    assert count_redactions({"redacted": "mine"}, {"jwt": 1}) == {"redacted": {"jwt": 1}}


def test_secret_as_a_name_is_redacted() -> None:
    key = "sk-" + "proj-" + "a1B2_c3-" * 8
    call = {"event_type": "tool_call", "tool_name": key, "agent": key}
    clean = redact_trace(CreateTraceRequest.model_validate({"events": [call], "tools": [key]}))
    (event,), (tool,) = clean.events, clean.tools
    assert {event.tool_name, event.agent, tool.name} == {"[secret:openai_key]"}
    assert clean.metadata["redacted"] == {"openai_key": 3}
