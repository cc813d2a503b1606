"""Files and spans of other programs whose import took minutes or gigabytes in an API process."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from hansei.coding_agents.hook_settings import read_settings
from hansei.errors import BadRequestError
from memory_api.core.errors import PayloadTooLarge
from memory_api.core.json_input import MAX_VALUES
from memory_api.traces.importers.formats import convert_record, convert_session
from memory_api.traces.importers.session_lines import AGENT_KEY, parse_messages
from memory_api.traces.otlp.decoding import PROTOBUF, decode_request
from memory_api.traces.otlp.genai import group_spans

MAX_SECONDS = 3
"""Of CPU, on a slow machine. The reported attacks took 8 seconds to many minutes."""


def run_of(*children: dict[str, Any]) -> dict[str, Any]:
    return {"id": "r", "run_type": "chain", "child_runs": list(children)}


def test_many_sub_agents_of_one_name_take_no_quadratic_time() -> None:
    """Half a megabyte took 24 s, in which the process answered nobody."""
    entry = {"isSidechain": True, "message": {"role": "user", "content": "Look."}}
    started = time.process_time()
    messages = parse_messages([entry] * 20_000)
    assert time.process_time() - started < MAX_SECONDS
    names = [message[AGENT_KEY] for message in messages]
    assert names[:3] == ["sub-agent", "sub-agent 2", "sub-agent 3"]
    assert len(set(names)) == len(names)


def test_many_tools_without_a_call_take_no_quadratic_time() -> None:
    """Half a megabyte took 19 s."""
    calls = [{"id": f"c{n}", "name": "t", "arguments": {"a": n}} for n in range(6_000)]
    reply = {"role": "assistant", "tool_calls": calls}
    model = {"run_type": "llm", "outputs": {"messages": [reply]}}
    tool = {"run_type": "tool", "name": "t", "inputs": {"b": 1}, "outputs": "y"}
    tools = [{**tool, "id": f"x{n}"} for n in range(6_000)]
    started = time.process_time()
    (trace,) = convert_record(run_of(model, *tools), "langsmith")
    assert time.process_time() - started < MAX_SECONDS
    assert len(trace["events"]) == 3 * 6_000


def test_context_of_codex_takes_linear_time() -> None:
    """400 kB stopped the process for 17 s: a regular expression divided spaces in all ways."""
    text = "# AGENTS.md instructions for " + " " * 4_096 + "\n" * 50_000 + "x<INSTRUCTIONS>"
    item = {"type": "message", "role": "user", "content": text}
    line = json.dumps({"type": "response_item", "payload": item}).encode()
    started = time.process_time()
    ((_, trace),) = convert_session([(1, line)], "codex")
    assert time.process_time() - started < 1
    assert isinstance(trace, bytes)


def test_arguments_as_text_of_python_take_little_memory() -> None:
    """A megabyte took 480 MB, and other requests waited for the parser."""
    text = "{" + "1:1," * 100_000 + "}"
    tool = {"run_type": "tool", "name": "t", "id": "x", "inputs": {"input": text}, "outputs": "y"}
    tracemalloc.start()
    (trace,) = convert_record(run_of(tool), "langsmith")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20_000_000
    assert trace["events"][0]["content"] == text


@pytest.mark.parametrize("parts", [1, 4])
def test_values_in_texts_of_an_export_are_counted(parts: int) -> None:
    """16 MB of text were millions of lists."""
    text = "[" + "[]," * (MAX_VALUES // 2 // parts + 1) + "[]]"
    tools = [{"type": "TOOL", "name": "t", "input": text, "output": "y"}] * parts
    with pytest.raises(PayloadTooLarge, match="langfuse can have at most 750,000 values"):
        convert_record({"id": "x", "observations": tools}, "langfuse")


def spans(resource: dict[str, str], attributes: dict[str, str], count: int) -> bytes:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    scope = group.scope_spans.add()
    targets = [(group.resource, resource)]
    targets += [(scope.spans.add(trace_id=b"1" * 16), attributes) for _ in range(count)]
    for target, values in targets:
        for name, value in values.items():
            target.attributes.add(key=name).value.string_value = value
    return request.SerializeToString()


@pytest.mark.parametrize(
    ("resource", "count"),
    [
        ({f"gen_ai.{n}": "x" for n in range(2_000)}, 2_000),  # 119 kB took 280 MB
        ({"gen_ai.input.messages": "x" * 700_000}, 200),
    ],
)
def test_attributes_of_a_resource_count_for_each_span(resource: dict[str, str], count: int) -> None:
    raw = spans(resource, {}, count)
    with pytest.raises(PayloadTooLarge, match="counted once for each span"):
        group_spans(decode_request(raw, PROTOBUF))


def test_values_in_texts_of_a_span_are_counted() -> None:
    half = "[" + "[]," * (MAX_VALUES // 4) + "[]]"
    raw = spans({}, {"gen_ai.input.messages": half, "gen_ai.output.messages": half}, 1)
    with pytest.raises(PayloadTooLarge, match="A span can have at most 750,000 values"):
        group_spans(decode_request(raw, PROTOBUF))


def test_settings_with_many_names_take_no_quadratic_time(tmp_path: Any) -> None:
    """A cloned repository stopped `hansei hooks status` for minutes."""
    names = [f"k{n}" for n in range(40_000)] + ["twice", "twice"]
    path = tmp_path / "settings.json"
    path.write_text("{" + ",".join(f"{json.dumps(name)}:1" for name in names) + "}")
    started = time.process_time()
    with pytest.raises(BadRequestError, match="the key `twice` occurs twice"):
        read_settings(path)
    assert time.process_time() - started < MAX_SECONDS
