"""The MCP server with the official client: over HTTP in the service, over stdio in a process."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import jsonschema
import pytest
from fastapi import FastAPI
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.support.paths import ROOT
from tests.support.problems import assert_problem

TOOLS = {
    *("list_playbooks", "search_bullets", "render_playbook", "record_verdict", "create_trace"),
    *("record_outcome", "create_agent_run", "get_agent_run", "answer_intervention"),
}
RULE = "Check that the order is shipped before you refund it."


@asynccontextmanager
async def connect(app: FastAPI, tenant: Any, scope: str = "write", mode: Any = "auto"):
    """An MCP client of this process with a key of the tenant."""
    transport = httpx2.ASGITransport(app=app)
    async with (
        httpx2.AsyncClient(transport=transport, headers=tenant.auth(scope)) as http,
        Client(streamable_http_client("http://h.example/mcp", http_client=http), mode=mode) as mcp,
    ):
        yield mcp


def text_of(content: Any) -> str:
    return content.text


async def call(mcp: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await mcp.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return json.loads(text_of(answer.content[0]))


async def refused(mcp: Client, tool: str, **arguments: Any) -> str:
    answer = await mcp.call_tool(tool, arguments)
    assert answer.is_error
    return text_of(answer.content[0])


@pytest.fixture
async def support(api: httpx2.AsyncClient) -> str:
    """The key of the only bullet of the playbook `support`."""
    answer = await api.post("/api/v1/playbooks/support/bullets", json={"content": RULE})
    assert answer.status_code == 201
    return answer.json()["bullet"]["id"]


async def test_request_without_a_valid_key_is_401(http: httpx2.AsyncClient) -> None:
    for headers in ({}, {"Authorization": "Bearer hsk_x"}, {"Authorization": "Basic eDp5"}):
        answer = await http.post("/mcp", headers=headers, json={})
        assert_problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_service_without_the_extra_names_it(
    api: httpx2.AsyncClient, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    answer = await api.post("/mcp", json={})
    assert "hansei-server[mcp]" in assert_problem(answer, 404, "not_found")["detail"]
    assert_problem(await http.post("/mcp", json={}), 401, "unauthorized")


async def test_huge_message_is_refused(api: httpx2.AsyncClient) -> None:
    """A body of 1 GB was read into memory, with any key."""
    read = 0

    async def send() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1_000):
            read += 1
            yield b" " * 100_000

    headers = {"Content-Type": "application/json"}
    assert_problem(await api.post("/mcp", content=send(), headers=headers), 413, "too_large")
    assert read < 20
    deep = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 100_000
    answer = await api.post("/mcp", content=deep, headers=headers)
    assert answer.status_code == 400, answer.text
    many = b'{"jsonrpc":"2.0","id":1,"params":[' + b"1," * 400_000 + b"1]}"
    answer = await api.post("/mcp", content=many, headers=headers)
    assert answer.status_code == 400, answer.text


async def test_there_are_no_sessions(api: httpx2.AsyncClient) -> None:
    """GET would open a stream of messages from the server, DELETE end a session."""
    for method in ("GET", "DELETE"):
        assert_problem(await api.request(method, "/mcp"), 405, "method_not_allowed")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_tools_are_listed_in_old_and_new_protocol(app, tenant, mode: str) -> None:
    async with connect(app, tenant, mode=mode) as mcp:
        tools = (await mcp.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert "render_playbook" in (mcp.instructions or "")


async def test_playbook_is_applied_used_and_judged(app, tenant, api, support: str) -> None:
    async with connect(app, tenant) as mcp:
        found = await call(mcp, "search_bullets", playbook="support", query_text="refund an order")
        assert [hit["content"] for hit in found["results"]] == [RULE]
        block = await call(mcp, "render_playbook", playbook="support", query_text="refund order 7")
        assert RULE in block["text"]
        assert block["bullet_keys"] == [support]
        stored = await call(
            mcp,
            "create_trace",
            task_description="refund order 7",
            events=[
                {"event_type": "tool_call", "tool_name": "refund", "content": '{"order": 7}'},
                {"event_type": "tool_response", "tool_name": "refund", "error": "not shipped"},
            ],
            playbook="support",
            retrieval_id=block["retrieval_id"],
            used_bullet_keys=block["bullet_keys"],
        )
        await call(mcp, "record_outcome", trace_id=stored["trace_id"], outcome="failure")
        verdict = await call(
            mcp,
            "record_verdict",
            playbook="support",
            key=support,
            tag="harmful",
            trace_id=stored["trace_id"],
        )
        assert verdict["counted"]
    trace = (await api.get(f"/api/v1/traces/{stored['trace_id']}")).json()
    assert (trace["outcome"], trace["event_count"]) == ("failure", 2)
    assert trace["used_bullet_keys"] == [support]


async def test_playbooks_are_resources_and_a_prompt(app, tenant, support: str) -> None:
    async with connect(app, tenant) as mcp:
        (resource,) = (await mcp.list_resources()).resources
        assert (resource.name, str(resource.uri)) == ("support", "hansei://playbooks/support")
        text = text_of((await mcp.read_resource(str(resource.uri))).contents[0])
        assert f"- [{support}] {RULE}" in text
        prompt = await mcp.get_prompt("apply_playbook", {"playbook": "support", "task": "refund"})
        message = text_of(prompt.messages[0].content)
        assert RULE in message
        assert "Task: refund" in message


async def test_another_tenant_sees_and_changes_nothing(
    app, make_tenant, tenant, support: str
) -> None:
    stranger = await make_tenant()
    async with connect(app, tenant) as mine, connect(app, stranger) as other:
        event = {"event_type": "user_message", "content": "refund"}
        trace = await call(mine, "create_trace", task_description="refund", events=[event])
        assert await call(other, "list_playbooks") == {"items": []}
        assert (await other.list_resources()).resources == []
        with pytest.raises(MCPError):
            await other.read_resource("hansei://playbooks/support")
        assert "not" in await refused(other, "search_bullets", playbook="support")
        await refused(other, "record_outcome", trace_id=trace["trace_id"], outcome="success")
        await refused(other, "record_verdict", playbook="support", key=support, tag="harmful")
        assert len((await call(mine, "list_playbooks"))["items"]) == 1


async def test_key_scope_and_arguments_are_checked(app, tenant, support: str) -> None:
    async with connect(app, tenant, "read") as mcp:
        text = await refused(mcp, "record_verdict", playbook="support", key=support, tag="helpful")
        assert "scope `write`" in text
        answer = await refused(mcp, "record_verdict", playbook="support", tag="wrong")
        assert answer.splitlines() == [
            "key: This argument is required.",
            "tag: Must be 'helpful', 'harmful' or 'neutral'.",
        ]


async def test_unknown_argument_is_refused(app, tenant, support: str) -> None:
    """They were ignored: a misspelled filter found everything."""
    async with connect(app, tenant) as mcp:
        text = await refused(mcp, "search_bullets", playbook="support", section_filter=["X"])
        assert text == (
            "section_filter: Unknown argument. Allowed: playbook, query_text, top_k,"
            " min_match, project_id."
        )
        event = {"event_type": "tool_call", "tool": "refund"}
        text = await refused(mcp, "create_trace", tusk="refund", events=[event])
        assert text.splitlines() == [
            "task_description: This argument is required.",
            "events.0.tool: Unknown argument. Allowed: event_type, content, tool_name, error.",
            "tusk: Unknown argument. Allowed: task_description, events, outcome, playbook,"
            " retrieval_id, used_bullet_keys, generated_answer, external_id, project_id.",
        ]
        for tool in (await mcp.list_tools()).tools:
            assert tool.input_schema["additionalProperties"] is False, tool.name


async def test_search_without_a_query_has_no_match(app, tenant, support: str) -> None:
    async with connect(app, tenant) as mcp:
        (found,) = (await call(mcp, "search_bullets", playbook="support"))["results"]
    assert (found["id"], found["match"]) == (support, None)


async def test_every_tool_has_an_output_schema(app, tenant, support: str) -> None:
    async with connect(app, tenant) as mcp:
        schemas = {tool.name: tool.output_schema for tool in (await mcp.list_tools()).tools}
        assert set(schemas) == TOOLS
        for name, schema in schemas.items():
            assert (schema or {})["properties"], name
        found = await mcp.call_tool(
            "search_bullets", {"playbook": "support", "query_text": "refund"}
        )
    jsonschema.validate(found.structured_content, schemas["search_bullets"] or {})
    assert found.structured_content == json.loads(text_of(found.content[0]))


async def test_agent_is_asked_and_its_question_answered(app, api, tenant, drain) -> None:
    made = await api.post("/api/v1/collections", json={"name": "handbook"}, headers=tenant.auth())
    assert made.status_code == 201, made.text
    async with connect(app, tenant) as mcp:
        run = await call(mcp, "create_agent_run", query="Who may refund?", wait_seconds=0)
        await drain(tenant.id)
        asked = {"agent_run_id": run["agent_run_id"]}
        run = await call(mcp, "get_agent_run", **asked)
        assert run["state"] == "waiting"
        assert "input" in run["intervention"]["options"]
        assert "`input` is needed" in await refused(
            mcp, "answer_intervention", **asked, action="input"
        )
        answered = await call(
            mcp, "answer_intervention", **asked, action="input", input="Anna.", wait_seconds=0
        )
        assert answered["state"] in ("queued", "running")
        assert answered["intervention"] is None
        assert "asks nothing" in await refused(mcp, "answer_intervention", **asked, action="cancel")


@pytest.mark.slow
async def test_same_tools_over_stdio(live: str, tenant: Any, support: str) -> None:
    environment = {
        **os.environ,
        "HANSEI_URL": live,
        "HANSEI_API_KEY": tenant.keys["write"],
        "PYTHONPATH": f"{ROOT / 'apps'}{os.pathsep}{ROOT / 'sdk'}",
    }
    command = [sys.executable, "-m", "hansei", "mcp"]
    server = StdioServerParameters(command=command[0], args=command[1:], env=environment)
    async with Client(server) as mcp:
        assert {tool.name for tool in (await mcp.list_tools()).tools} == TOOLS
        block = await call(mcp, "render_playbook", playbook="support", query_text="refund")
        assert RULE in block["text"]
        assert "not" in await refused(mcp, "search_bullets", playbook="absent")
