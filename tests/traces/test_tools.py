"""The tools that an agent could call: accepted forms, storage, and what they say of a call."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient
from hypothesis import given
from hypothesis import strategies as st

from memory_api.trace_analysis.parser import parse_trace
from memory_api.traces.schemas import Event
from memory_api.traces.tools import MAX_TOOLS, ToolDefinition, merge_tools
from tests.support.api_calls import event, new_trace, trace
from tests.support.cases import each_case
from tests.support.problems import assert_names

SECRET = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@each_case(
    ("sent", "name", "description", "writes"),
    [
        ("get_order", "get_order", None, None),
        ({"name": "refund", "writes": True}, "refund", None, True),
        (
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}},
            "f",
            "d",
            None,
        ),
        ({"type": "function", "name": "f", "description": "d", "strict": True}, "f", "d", None),
        ({"name": "f", "description": "d", "input_schema": {"type": "object"}}, "f", "d", None),
        ({"type": "web_search"}, "web_search", None, None),
        ({"type": "bash_20250124", "name": "bash"}, "bash", None, None),
        ({"name": "f", "annotations": {"readOnlyHint": True}}, "f", None, False),
        ({"name": "f", "annotations": {"readOnlyHint": False}}, "f", None, True),
        ({"name": "f", "annotations": {"destructiveHint": True}}, "f", None, True),
        ({"name": "f", "annotations": {"destructiveHint": False}}, "f", None, None),
        ({"name": "f", "annotations": {"title": "F"}}, "f", None, None),
        ({"name": "f", "writes": False, "annotations": {"readOnlyHint": False}}, "f", None, False),
        ({"name": "f", "description": "d" * 9_000}, "f", "d" * 4_000, None),
    ],
)
def test_forms_of_a_tool(sent: Any, name: str, description: str | None, writes: Any) -> None:
    tool = ToolDefinition.model_validate(sent)
    assert (tool.name, tool.description, tool.writes) == (name, description, writes)


TOOLS = st.builds(
    ToolDefinition, name=st.sampled_from("abc"), writes=st.sampled_from([True, False, None])
)


@given(st.lists(TOOLS))
def test_last_statement_about_a_tool_counts(tools: list[ToolDefinition]) -> None:
    merged = merge_tools(tools)
    assert [tool.name for tool in merged] == list(dict.fromkeys(tool.name for tool in tools))
    for tool in merged:
        stated = [t.writes for t in tools if t.name == tool.name and t.writes is not None]
        assert tool.writes == (stated[-1] if stated else None)


async def test_tools_are_stored_and_read_back(api: AsyncClient) -> None:
    tools = [
        {"name": "get_order", "annotations": {"readOnlyHint": True}},
        {"type": "function", "function": {"name": "refund", "description": f"Uses {SECRET}"}},
        "refund",
    ]
    back = (await api.get(f"/api/v1/traces/{await new_trace(api, tools=tools)}")).json()
    assert back["tools"] == [
        {"name": "get_order", "description": None, "writes": False},
        {"name": "refund", "description": "Uses [secret:github_token]", "writes": None},
    ]
    assert back["metadata"]["redacted"] == {"github_token": 1}


async def test_trace_without_tools(api: AsyncClient) -> None:
    for more in ({}, {"tools": None}, {"tools": []}):
        back = (await api.get(f"/api/v1/traces/{await new_trace(api, **more)}")).json()
        assert back["tools"] == []


async def test_tools_of_an_open_trace_are_added(api: AsyncClient) -> None:
    trace_id = await new_trace(api, state="open", outcome=None, events=[], tools=["a"])
    body = {"events": [event()], "tools": [{"name": "b", "writes": True}, "a"]}
    answer = await api.post(f"/api/v1/traces/{trace_id}/events", json=body)
    assert answer.status_code == 200
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert [(tool["name"], tool["writes"]) for tool in back["tools"]] == [("a", None), ("b", True)]


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        ([{"description": "no name"}], "tools.0.name"),
        ([{"type": "function", "function": {}}], "tools.0.name"),
        (["x" * 200], "tools.0.name"),
        ([f"t{n}" for n in range(MAX_TOOLS + 1)], "tools"),
        ({"get_order": {}}, "tools"),
    ],
)
async def test_invalid_tools_are_named(api: AsyncClient, tools: Any, field: str) -> None:
    answer = await api.post("/api/v1/traces", json=trace(tools=tools))
    assert_names(answer, field)


def test_calls_know_only_what_the_trace_says() -> None:
    events = [
        Event.model_validate({"event_type": "tool_call", "tool_name": tool, "content": "{}"})
        for tool in ("delete_user", "lookup", "terraform")
    ]
    assert [call.writes for call in parse_trace(events).calls] == [None, None, None]
    assert [tool.name for tool in parse_trace(events).tools] == [
        "delete_user",
        "lookup",
        "terraform",
    ]
    tools = [
        ToolDefinition(name="lookup", writes=False),
        ToolDefinition(name="terraform", writes=True),
        ToolDefinition(name="unused"),
    ]
    parsed = parse_trace(events, tools=tools)
    assert [call.writes for call in parsed.calls] == [None, False, True]
    assert [tool.name for tool in parsed.tools] == ["lookup", "terraform", "unused"]
