"""The attributes that pydantic-ai, OpenLLMetry, OpenInference and older semantic conventions write.

tests/recordings/spans has spans of the real instrumentations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memory_api.traces.otlp.decoding import Span, decode_json
from memory_api.traces.otlp.genai import group_spans
from tests.support.cases import each_case
from tests.support.paths import ROOT

RECORDED = sorted((ROOT / "tests/recordings/spans").glob("*.json"))


def make(events: list[tuple[str, dict[str, Any]]] | None = None, **attributes: Any) -> Span:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return Span("ab" * 16, "cd" * 8, "ef" * 8, "span", 10**18, 2 * 10**18, named, events or [])


def contents(*spans: Span) -> list[tuple[str, str | None, str]]:
    (group,) = group_spans(list(spans)).groups
    return [(event.event_type.value, event.tool_name, event.content) for event in group.events]


EXPECTED = [
    ("system_event", None, "Be brief."),
    ("user_message", None, "Where is W1?"),
    ("tool_call", "get_order", '{"id": "W1"}'),
]


@each_case("path", RECORDED)
def test_spans_of_real_instrumentations(path: Path) -> None:
    """Each run asks the model, calls a tool and asks again, so messages are in several spans."""
    grouped = group_spans(decode_json(json.loads(path.read_text(encoding="utf-8"))))
    (group,) = grouped.groups
    has_agent_span = path.stem.startswith(("pydantic-ai", "openinference-langchain"))
    assert grouped.ignored == (0 if has_agent_span else 1)  # the root span of the program
    assert group.has_ended
    found = [
        (event.event_type.value, event.tool_name, event.content.replace('{"id":"', '{"id": "'))
        for event in group.events
    ]
    answered = [("tool_response", "get_order", "sent"), ("llm_response", None, "It is on its way.")]
    assert sorted(found[:2]) == EXPECTED[:2]  # an agent span starts with the question of the user
    assert found[2:] == [EXPECTED[2], *answered]
    (call_id,) = {event.metadata["call_id"] for event in group.events[2:4]}
    assert call_id in ("call_1_0", "fc_call_1_0")  # OpenLLMetry writes the ID of the item
    assert group.events[-1].metadata["model"] in ("gpt-5", "claude-haiku-5-5")
    if has_agent_span:
        assert group.fields["generated_answer"] == "It is on its way."


def test_recordings_are_there() -> None:
    assert len(RECORDED) >= 10


def test_openllmetry() -> None:
    attributes: dict[str, Any] = {
        "traceloop.association.properties.session_id": "s-1",
        "llm.request.type": "chat",
        "gen_ai.request.model": "a-model",
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": json.dumps([{"type": "text", "text": "Where is W1?"}]),
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "get_order",
        "gen_ai.completion.0.tool_calls.0.arguments": '{"id": "W1"}',
    }
    call = Span("ab" * 16, "01" * 8, "ef" * 8, "openai.chat", 1, 2, attributes)
    assert contents(call) == EXPECTED
    tool = Span(
        "ab" * 16, "02" * 8, "ef" * 8, "get_order.tool", 3, 4,
        {"traceloop.span.kind": "tool", "traceloop.entity.name": "get_order",
         "traceloop.entity.input": '{"id": "W1"}', "traceloop.entity.output": '"sent"'},
    )  # fmt: skip
    assert contents(tool)[1] == ("tool_response", "get_order", '"sent"')
    assert group_spans([call]).groups[0].session_id == "s-1"


def test_openinference() -> None:
    prefix, function = "llm.output_messages.0.message", "tool_calls.0.tool_call.function"
    attributes: dict[str, Any] = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "a-model",
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": "Be brief.",
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.contents.0.message_content.type": "text",
        "llm.input_messages.1.message.contents.0.message_content.text": "Where is W1?",
        f"{prefix}.role": "assistant",
        f"{prefix}.{function}.name": "get_order",
        f"{prefix}.{function}.arguments": '{"id": "W1"}',
        f"{prefix}.tool_calls.0.tool_call.id": "c1",
        "session.id": "s-1",
    }
    call = Span("ab" * 16, "01" * 8, "ef" * 8, "ChatCompletion", 1, 2, attributes)
    assert contents(call) == EXPECTED
    assert group_spans([call]).groups[0].session_id == "s-1"


def test_span_events_of_older_conventions() -> None:
    choice = {
        "message": json.dumps({"tool_calls": [{"id": "c1", "function": {
            "name": "get_order", "arguments": '{"id": "W1"}'}}]})
    }  # fmt: skip
    call = make(
        [
            ("gen_ai.system.message", {"content": "Be brief."}),
            ("gen_ai.user.message", {"content": "Where is W1?"}),
            ("gen_ai.choice", choice),
        ],
        gen_ai__operation__name="chat",
    )
    assert contents(call) == EXPECTED


def test_call_without_contents_is_an_event() -> None:
    call = make(
        gen_ai__operation__name="chat", gen_ai__request__model="m", gen_ai__usage__input_tokens=7
    )
    (group,) = group_spans([call]).groups
    (event,) = group.events
    assert (event.event_type.value, event.metadata) == (
        "llm_call",
        {"model": "m", "input_tokens": 7},
    )


def test_hostile_attributes() -> None:
    """No value of an attribute makes a span fail."""
    hostile: list[Any] = [None, "", "[", "{}", "[1]", [[1]], {"a": 1}, 7, True, "[" * 5_000]
    names = (
        "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions",
        "gen_ai.prompt.0.content", "gen_ai.prompt.0.role", "gen_ai.tool.name", "session.id",
        "gen_ai.tool.call.id", "gen_ai.completion.0.tool_calls.0.arguments", "hansei.outcome",
        "gen_ai.operation.name", "llm.input_messages.0.message.contents.0.message_content.text",
    )  # fmt: skip
    for value in hostile:
        for kind in ("chat", "execute_tool", "invoke_agent"):
            for name in names:
                attributes = {"gen_ai.operation.name": kind, name: value}
                span = Span(
                    "ab" * 16,
                    "cd" * 8,
                    "",
                    "",
                    0,
                    2**63,
                    attributes,
                    [("gen_ai.choice", attributes)],
                )
                for group in group_spans([span]).groups:
                    assert isinstance(group.events, list)
