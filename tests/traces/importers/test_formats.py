"""Records of other programs as traces: conversion, detection, damaged records, over HTTP."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from httpx2 import AsyncClient

from hansei.session_files import detect_format as client_detects
from hansei.session_files import detect_session
from memory_api.core.errors import HanseiError
from memory_api.traces.importers.formats import (
    SESSION_CONVERTERS,
    convert_record,
    convert_session,
    detect_format,
    document_records,
)
from memory_api.traces.schemas import CreateTraceRequest
from tests.support.api_calls import NDJSON, ndjson
from tests.support.cases import each_case
from tests.support.paths import ROOT

CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"id": 1}'}}
OPENAI = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "here"},
    ],
    "choices": [{"message": {"role": "assistant", "content": "It is here."}}],
}
ANTHROPIC = {
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"id": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "here"}]},
    ],
    "response": {"role": "assistant", "content": [{"type": "text", "text": "It is here."}]},
}  # fmt: skip
RESPONSES = {
    "instructions": "Be brief.",
    "input": "Where is it?",
    "output": [
        {"type": "reasoning", "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"id": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "here"},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "It is here."}]},
    ],
}  # fmt: skip
LANGFUSE = {
    "id": "lf-1", "sessionId": "s-1", "name": "agent", "input": "Where is it?",
    "output": "It is here.",
    "observations": [
        {"id": "o2", "type": "TOOL", "name": "look_up", "startTime": "2026-01-01T00:00:02Z",
         "input": {"id": 1}, "output": "here"},
        {"id": "o1", "type": "GENERATION", "startTime": "2026-01-01T00:00:01Z",
         "input": [{"role": "system", "content": "Be brief."},
                   {"role": "user", "content": "Where is it?"}], "output": None},
        {"id": "o3", "type": "GENERATION", "startTime": "2026-01-01T00:00:03Z",
         "input": None, "output": {"role": "assistant", "content": "It is here."}},
    ],
}  # fmt: skip
LANGSMITH = {
    "id": "ls-1", "run_type": "chain", "name": "agent", "inputs": {"input": "Where is it?"},
    "outputs": {"output": "It is here."},
    "child_runs": [
        {"run_type": "tool", "id": "r2", "name": "look_up", "start_time": "2",
         "inputs": {"id": 1}, "outputs": {"output": "here"}},
        {"run_type": "llm", "id": "r1", "start_time": "1",
         "inputs": {"messages": [[
             {"id": ["SystemMessage"], "kwargs": {"type": "system", "content": "Be brief."}},
             {"id": ["HumanMessage"], "kwargs": {"type": "human", "content": "Where is it?"}}]]},
         "outputs": None},
        {"run_type": "llm", "id": "r3", "start_time": "3", "inputs": None, "outputs": {
            "generations": [[{"message": {"kwargs": {"type": "ai", "content": "It is here."}}}]]}},
    ],
}  # fmt: skip
OTEL = {"resourceSpans": [{"scopeSpans": [{"spans": [
    {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "chat", "startTimeUnixNano": "1",
     "endTimeUnixNano": "2", "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.input.messages",
         "value": {"stringValue": json.dumps(OPENAI["messages"][:2])}},
        {"key": "gen_ai.output.messages", "value": {"stringValue": json.dumps([
            {"role": "assistant", "parts": [{"type": "text", "content": "It is here."}]}])}},
     ]}]}]}]}  # fmt: skip
TAU = {
    "task_id": 7, "reward": 0.0, "trial": 2, "traj": OPENAI["messages"],
    "info": {"task": {"instruction": "Find it.", "actions": [{"name": "look_up", "kwargs": {}}]}},
}  # fmt: skip
SWE = {
    "environment": "swe_main", "instance_id": "repo__1",
    "history": [{"role": "user", "content": "Fix it."}],
    "trajectory": [
        {"thought": "I list the files.", "action": "ls -F\n", "observation": "setup.py"},
        {"thought": "Done.", "action": "submit", "observation": ""},
    ],
    "info": {"exit_status": "submitted", "submission": "diff --git a b"},
}  # fmt: skip
CONVERSATION = [
    ("system_event", None, "Be brief."),
    ("user_message", None, "Where is it?"),
    ("tool_call", "look_up", '{"id": 1}'),
    ("tool_response", "look_up", "here"),
    ("llm_response", None, "It is here."),
]
CODEX = [
    {"type": "session_meta", "payload": {"id": "s-9", "cwd": "."}},
    *({"type": "response_item", "payload": item} for item in (
        {"type": "message", "role": "developer", "content": [
            {"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "Where is it?"}]},
        *RESPONSES["output"])),
    {"type": "event_msg", "payload": {"type": "token_count"}},
]  # fmt: skip


def events_of(trace: dict[str, Any]) -> list[tuple[str, str | None, str]]:
    body = CreateTraceRequest.model_validate(trace)
    return [(event.event_type.value, event.tool_name, event.content) for event in body.events]


@each_case(
    ("name", "record", "expected"),
    [
        ("openai", OPENAI, CONVERSATION),
        ("anthropic", ANTHROPIC, CONVERSATION),
        ("openai-responses", RESPONSES, CONVERSATION),
        ("langfuse", LANGFUSE, CONVERSATION),
        ("langsmith", LANGSMITH, CONVERSATION),
        ("otel", OTEL, [CONVERSATION[0], CONVERSATION[1], CONVERSATION[4]]),
        ("tau-bench", TAU, CONVERSATION[:4]),
        (
            "swe-agent",
            SWE,
            [
                ("llm_response", None, "I list the files."),
                ("tool_call", "ls", "ls -F\n"),
                ("tool_response", "ls", "setup.py"),
                ("llm_response", None, "Done."),
                ("tool_call", "submit", "submit"),
                ("tool_response", "submit", ""),
            ],
        ),
    ],
)
def test_record_is_converted_and_detected(name: Any, record: Any, expected: Any) -> None:
    (trace,) = convert_record(record, name)
    assert [
        (kind, tool, text.replace('{"id":1}', '{"id": 1}')) for kind, tool, text in events_of(trace)
    ] == expected
    assert trace["external_id"]
    (detected,) = convert_record(record | {"playbook": "support"}, "auto")
    assert events_of(detected) == events_of(trace)
    assert detected["playbook"] == "support"


@each_case("name", ["anthropic", "langfuse", "langsmith", "openai-responses"])
def test_records_of_real_sdks(name: Any) -> None:
    """tests/recordings/exports: two model calls with a tool between them. The second call repeats
    the first one, and the tool has an entry of its own.
    """
    text = (ROOT / f"tests/recordings/exports/{name}.json").read_text(encoding="utf-8")
    (record,) = document_records(json.loads(text))
    (trace,) = convert_record(record, name)
    assert events_of(trace) == [
        ("system_event", None, "Be brief."),
        ("user_message", None, "Where is W1?"),
        ("tool_call", "get_order", '{"id": "W1"}'),
        ("tool_response", "get_order", "sent"),
        ("llm_response", None, "It is on its way."),
    ]
    assert trace["task_description"] == "Where is W1?"
    assert {each["metadata"]["call_id"] for each in trace["events"][2:4]} == {"call_1_0"}
    (detected,) = convert_record(record, "auto")
    assert events_of(detected) == events_of(trace)
    _, head = detect_session(io.BytesIO(text.encode()))
    detected_by_client = name if name.startswith("lang") else None
    assert client_detects(head) == client_detects(json.dumps(json.loads(text)).encode())
    assert client_detects(head) == detected_by_client


def test_observations_of_several_traces() -> None:
    items = [
        {"traceId": trace, "id": f"{trace}{n}", "type": "EVENT", "input": text}
        for n, (trace, text) in enumerate([("a", "1"), ("b", "2"), ("a", "3")])
    ]
    first, second = (convert_record(each, "langfuse")[0] for each in document_records(items))
    assert (first["external_id"], second["external_id"]) == ("langfuse:a", "langfuse:b")
    assert [content for _, _, content in events_of(first)] == ["1", "3"]


def test_outcomes_of_benchmarks() -> None:
    (tau,) = convert_record(TAU, "tau-bench")
    assert (tau["outcome"], tau["task_key"], tau["task_goal"]) == (
        "failure",
        "tau-bench-7",
        "Find it.",
    )
    assert tau["ground_truth"]["actions"][0]["name"] == "look_up"
    assert convert_record(TAU | {"reward": 1.0}, "tau-bench")[0]["outcome"] == "success"
    (swe,) = convert_record(SWE, "swe-agent")
    assert "outcome" not in swe  # "submitted" says nothing about the tests
    assert (swe["task_description"], swe["generated_answer"]) == ("Fix it.", "diff --git a b")


def test_codex_session_with_damaged_line() -> None:
    lines = [(n, json.dumps(line).encode()) for n, line in enumerate(CODEX, start=1)]
    lines.insert(3, (99, b'{"type": "respon'))
    damaged, (number, raw) = convert_session(lines, "codex")
    assert damaged[0] == 99
    assert isinstance(damaged[1], HanseiError)
    assert isinstance(raw, bytes)
    trace = json.loads(raw)
    assert events_of(trace) == CONVERSATION
    assert trace["session_id"] == "s-9"
    assert number % 1_000_000_000 == 1


PREAMBLE = "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nUse uv.\n</INSTRUCTIONS>"
ENVIRONMENT = "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>"


@each_case(
    "texts",
    [
        [PREAMBLE, ENVIRONMENT, "Where is it?"],
        [f"{PREAMBLE}\n\n{ENVIRONMENT}\nWhere is it?"],
        ["<user_instructions>Use uv.</user_instructions>", "Where is it?"],
        ["# AGENTS.md instructions for /repo\n\nUse uv.", "Where is it?"],
    ],
)
def test_context_that_codex_adds_is_not_the_task(texts: list[str]) -> None:
    content = [{"type": "input_text", "text": text} for text in texts]
    item = {"type": "message", "role": "user", "content": content}
    entry = {"type": "response_item", "payload": item, "playbook": "coding", "project_id": "p"}
    ((_, raw),) = convert_session([(1, json.dumps(entry).encode())], "codex")
    assert isinstance(raw, bytes)
    trace = json.loads(raw)
    assert trace["task_description"] == "Where is it?"
    assert (trace["playbook"], trace["project_id"]) == ("coding", "p")
    (program, user) = events_of(trace)
    assert (program[0], user) == ("system_event", ("user_message", None, "Where is it?"))
    assert "Use uv." in program[2]


def test_langfuse_values_as_json_text() -> None:
    observations = [
        {name: json.dumps(value) if name in ("input", "output") and value else value
         for name, value in each.items()}
        for each in LANGFUSE["observations"]
    ]  # fmt: skip
    record = LANGFUSE | {"input": '{"messages": [{"role": "user", "content": "Where is it?"}]}'}
    (trace,) = convert_record(record | {"observations": observations}, "langfuse")
    assert [(k, t, c.replace('"here"', "here")) for k, t, c in events_of(trace)] == CONVERSATION
    assert trace["task_description"] == trace["query"] == "Where is it?"


@each_case(
    "reply",
    [
        {"type": "AIMessageChunk", "content": "", "tool_calls": [
            {"id": "c1", "name": "look_up", "args": {"id": 1}}]},
        {"lc": 1, "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {
            "content": "", "additional_kwargs": {"tool_calls": [CALL]}}},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
    ],
)  # fmt: skip
def test_tool_calls_of_langsmith(reply: dict[str, Any]) -> None:
    outputs = {"generations": [[{"message": reply}]]}
    run = {"id": "r", "run_type": "llm", "outputs": outputs}
    (trace,) = convert_record(run, "langsmith")
    ((kind, tool, content),) = events_of(trace)
    assert (kind, tool, json.loads(content)) == ("tool_call", "look_up", {"id": 1})


def test_record_of_another_format_is_named() -> None:
    with pytest.raises(HanseiError, match="looks like the format `langfuse`"):
        convert_record(LANGFUSE, "hansei")


@each_case(
    ("output", "exit_code"),
    [
        ('{"output": "no tests", "metadata": {"exit_code": 5, "duration_seconds": 0.1}}', 5),
        ("Exit code: 1\nWall time: 0.3 seconds\nOutput:\nFAILED", 1),
        ("Chunk ID: 5f\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\nok", 0),
        ("Exit code: 1 was returned", None),
        ("The log says:\nExit code: 1\nWall time: 0.3 seconds\n", None),
        ('{"output": "x", "metadata": ', None),
    ],
)
def test_exit_code_of_codex(output: str, exit_code: int | None) -> None:
    item = {"type": "function_call_output", "call_id": "c1", "output": output}
    lines = [(1, json.dumps({"type": "response_item", "payload": item}).encode())]
    ((_, raw),) = convert_session(lines, "codex")
    assert isinstance(raw, bytes)
    (event,) = json.loads(raw)["events"]
    assert event["metadata"].get("exit_code") == exit_code


def test_hostile_records() -> None:
    """A record is converted or refused; nothing else is raised."""
    values: list[Any] = [None, 7, "x", [], {}, [None], [{}], {"a": {}}, [[[]]], [{"role": 7}]]
    keys = {
        key
        for each in (OPENAI, ANTHROPIC, RESPONSES, LANGFUSE, LANGSMITH, TAU, SWE)
        for key in each
    }
    for record in (OPENAI, ANTHROPIC, RESPONSES, LANGFUSE, LANGSMITH, OTEL, TAU, SWE):
        name: Any = detect_format(record)
        for key in keys:
            for value in values:
                with suppress(HanseiError):
                    convert_record({**record, key: value}, name)
    for name in SESSION_CONVERTERS:
        for value in values:
            convert_session([(1, json.dumps(value).encode())], name)  # type: ignore[arg-type]


async def test_damaged_record_is_reported_by_line(api: AsyncClient) -> None:
    body = ndjson([TAU]) + b"{not json}\n" + ndjson([{"unknown": 1}, OTEL, SWE])
    path = "/api/v1/traces?format=auto&reflect=never"
    answer = await api.post(path, content=body, headers=NDJSON)
    result = answer.json()
    assert (result["stored_count"], result["rejected_count"]) == (3, 2)
    errors = {item["line"]: item["error"]["code"] for item in result["items"] if "error" in item}
    assert errors == {2: "malformed_json", 3: "invalid"}
    again = await api.post(path, content=body, headers=NDJSON)
    assert again.json()["duplicate_count"] == 3


async def test_json_list_of_an_export(api: AsyncClient) -> None:
    document = {"data": [LANGFUSE, {**LANGFUSE, "id": "lf-2"}, {"id": "lf-3", "observations": []}]}
    answer = await api.post("/api/v1/traces?format=langfuse&reflect=never", json=document)
    result = answer.json()
    assert (result["stored_count"], result["rejected_count"]) == (2, 1)
    assert [item["line"] for item in result["items"]] == [1, 2, 3]


async def test_one_record_with_several_agent_runs(api: AsyncClient) -> None:
    spans = OTEL["resourceSpans"][0]["scopeSpans"][0]["spans"]
    both = {
        "resourceSpans": [{"scopeSpans": [{"spans": [*spans, {**spans[0], "traceId": "ef" * 16}]}]}]
    }
    answer = await api.post("/api/v1/traces?format=otel&reflect=never", json=both)
    assert [item["line"] for item in answer.json()["items"]] == [1, 1]
    assert answer.json()["stored_count"] == 2


HOSTED = {
    "input": "Read the page.",
    "output": [
        {"type": "reasoning", "summary": [{"text": "I look."}], "encrypted_content": "x y"},
        {"type": "web_search_call", "id": "w", "action": {"q": "x"}, "results": [{"text": "one"}]},
        {"type": "mcp_call", "id": "m", "name": "get", "arguments": "{}", "output": "two"},
        {"type": "mcp_call", "id": "n", "name": "get", "arguments": "{}", "error": "three"},
        {"type": "code_interpreter_call", "id": "i", "code": "1", "outputs": [{"logs": "four 4"}]},
        {"type": "local_shell_call_output", "call_id": "l", "output": "five"},
        {"type": "mcp_list_tools", "tools": [{"name": "get", "description": "is six"}]},
    ],
}


def test_results_of_hosted_tools_are_events() -> None:
    (trace,) = convert_record(HOSTED, "openai-responses")
    events = trace["events"]
    shown = [(e["event_type"], e.get("tool_name")) for e in events]
    call, response = "tool_call", "tool_response"
    assert shown == [
        ("user_message", None),
        (call, "web_search"), (response, "web_search"), (call, "get"), (response, "get"),
        (call, "get"), (response, "get"),
        (call, "code_interpreter"), (response, "code_interpreter"),
        (response, None), ("system_event", None),
    ]  # fmt: skip
    for word in ("one", "two", "three", "four 4", "five", "is six"):
        assert word in str(events)
    assert [e["content"] for e in events if e.get("error")] == ["three"]


def test_retrieved_documents_are_responses() -> None:
    found = {"type": "RETRIEVER", "name": "kb", "input": {"q": "x"}, "output": ["Pay first."]}
    (trace,) = convert_record({"id": "t", "observations": [found]}, "langfuse")
    child = {"run_type": "retriever", "name": "kb", "inputs": {"query": "x"}}
    child["outputs"] = {"documents": [{"page_content": "Pay first."}]}
    run = {"id": "r", "run_type": "chain", "inputs": {"input": "Read."}, "child_runs": [child]}
    (other,) = convert_record(run | {"outputs": {"output": "done"}}, "langsmith")
    for events in (trace["events"], other["events"]):
        (response,) = [e for e in events if e["event_type"] == "tool_response"]
        assert "Pay first." in response["content"]


def test_spans_of_langfuse_are_calls_except_the_one_around_them() -> None:
    whole = {"id": "w", "type": "SPAN", "name": "agent", "input": "Refund 7", "output": "done"}
    refund = {"id": "a", "type": "SPAN", "name": "refund", "input": {"order": 7}, "output": "ok"}
    inside = [whole, refund | {"parentObservationId": "w"}]
    beside = [refund, {"id": "b", "type": "EVENT", "input": "paid"}]
    for observations in (inside, beside):
        (trace,) = convert_record({"id": "t", "observations": observations}, "langfuse")
        calls = [e["tool_name"] for e in trace["events"] if e["event_type"] == "tool_call"]
        assert calls == ["refund"]
