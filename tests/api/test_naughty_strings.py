"""Every string of the Big List of Naughty Strings in every text field: kept byte for byte, or
refused by the field's name; nothing in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from httpx2 import AsyncClient, Response
from sqlalchemy import text

from memory_api.core.schemas import fold_tags, is_playbook_name
from memory_api.core.secret_redaction import redact
from tests.support.api_calls import count, ndjson, new_memory, new_trace, pages_of, send_lines
from tests.support.problems import assert_problem

AT_ONCE = 6
"""Requests under way at the same time."""


@pytest.fixture(scope="module")
def strings(shared) -> list[str]:
    """The list, and what it does not hold: other normal forms, carriage returns, edges of
    Unicode."""
    listed = json.loads((shared / "data/awkward/blns.json").read_text())
    more = ["e\u0301\u0327", "\ufb01", "\u212b", "\r\n", "\r", " x ", "\ufeff", "\U0010ffff"]
    return list(dict.fromkeys([*listed, *more]))


def is_name(string: str) -> bool:
    return 1 <= len(string) <= 128


def is_outcome(_string: str) -> bool:
    """No string is one by chance."""
    return False


def is_kept(string: str) -> bool:
    """Secrets are taken out, and are tested elsewhere."""
    return redact(string).text == string


async def each(
    strings: list[str], send: Callable[[str], Coroutine[Any, Any, Response]]
) -> AsyncIterator[tuple[str, Response]]:
    """Send every string, some at once; no answer may be a 5xx."""
    for start in range(0, len(strings), AT_ONCE):
        part = strings[start : start + AT_ONCE]
        for string, answer in zip(part, await asyncio.gather(*map(send, part)), strict=True):
            assert answer.status_code < 500, (string, answer.text)
            if answer.status_code >= 400:
                assert assert_problem(answer, answer.status_code)["code"] != "malformed_json"
            yield string, answer


async def test_in_every_field_of_an_event(api: AsyncClient, strings: list[str]) -> None:
    events = [
        {
            "event_type": "tool_response",
            "content": string,
            "metadata": {string: string, "list": [string]},
            "error": {"message": string, "code": string},
        }
        | ({"tool_name": string, "event_id": string, "agent": string} if is_name(string) else {})
        for string in strings
        if is_kept(string)
    ]
    trace_id = await new_trace(api, events=events)
    open_id = await new_trace(api, state="open")
    answer = await api.post(f"/api/v1/traces/{open_id}/events", json={"events": events})
    assert answer.status_code == 200
    for stored, skipped in ((trace_id, 0), (open_id, 2)):
        back = (await pages_of(api, f"/api/v1/traces/{stored}/events", 200))[skipped:]
        assert len(back) == len(events)
        for sent, kept in zip(events, back, strict=True):
            assert {name: kept[name] for name in sent} == sent


TEXTS = ("task_description", "task_goal", "query", "generated_answer", "test_report")
NAMES = ("external_id", "task_key", "session_id", "language")


async def test_in_every_field_of_a_trace(api, tenant, runtime, strings: list[str]) -> None:
    kept = [string for string in strings if is_kept(string)]

    def line(string: str) -> dict[str, Any]:
        return {
            "events": [{"event_type": "tool_call", "content": "x"}],
            "outcome": "error",
            "error": {"message": string, "context": {string: string}},
            "reasoning_steps": [string],
            "ground_truth": {string: [string]},
            "metadata": {"own": string, f"x{string}": string},
        } | dict.fromkeys([*TEXTS, *(NAMES if is_name(string) else ())], string) | (
            {"playbook": string} if is_playbook_name(string) else {}
        ) | (
            {"project_id": "p"} | ({"used_bullet_keys": [string]} if is_name(string) else {})
        )  # fmt: skip

    answer = (await send_lines(api, ndjson(map(line, kept)))).json()
    assert (answer["stored_count"], answer["rejected_count"]) == (len(kept), 0)
    columns = (
        *TEXTS,
        *NAMES,
        "playbook",
        "used_bullet_keys",
        "reasoning_steps",
        "ground_truth",
        "error",
        "metadata",
    )
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.execute(text(f"select id::text, {', '.join(columns)} from traces"))
        found = {row.id: row for row in rows}
    for item, string in zip(answer["items"], kept, strict=True):
        row = found[item["trace_id"]]
        assert item["sanitized"] is False
        assert [getattr(row, name) for name in TEXTS] == [string] * len(TEXTS)
        assert row.reasoning_steps == [string]
        assert row.ground_truth == {string: [string]}
        assert row.metadata == {"own": string, f"x{string}": string}
        assert row.error["error_message"] == string
        if is_name(string):
            assert [getattr(row, name) for name in NAMES] == [string] * len(NAMES)
            assert row.used_bullet_keys == [string]
        assert row.playbook == (string if is_playbook_name(string) else None)


@pytest.mark.parametrize("name", [*NAMES, "project_id", "playbook", "outcome", "state"])
async def test_invalid_name_is_reported_by_field(api, tenant, runtime, strings, name: str) -> None:
    fits = {"playbook": is_playbook_name, "outcome": is_outcome, "state": is_outcome}
    wrong = [string for string in strings if not fits.get(name, is_name)(string)]
    events = [{"event_type": "tool_call"}]
    answer = await send_lines(api, ndjson({"events": events, name: s} for s in wrong))
    items = answer.json()["items"]
    assert [item["error"]["field"] for item in items] == [name] * len(wrong)
    assert (await count(runtime, tenant.id))["traces"] == 0


async def test_in_a_memory_and_in_its_changes(api: AsyncClient, strings: list[str]) -> None:
    """Half of them as the text, with the other half as everything else."""
    for blank in ("", " ", "\r\n"):
        assert_problem(await api.post("/api/v1/memories", json={"content": blank}), 422)
    texts = [string for string in strings if string.strip()]
    others = dict(zip(texts[::2], texts[1::2], strict=False))
    changed = await new_memory(api, "to be changed")

    def fields(string: str) -> dict[str, Any]:
        other = others[string]
        names = {"title": other} if is_name(other) else {}
        tags = {"tags": [other], "keywords": [other]} if len(other) <= 64 else {}
        return {"content": string, "when_to_use": other} | names | tags

    def brought(string: str) -> dict[str, Any]:
        other = others[string]
        names = {"source": other, "session_id": other} if is_name(other) else {}
        return fields(string) | names | {"metadata": {other: [string]}}

    async for string, answer in each(
        list(others), lambda s: api.post("/api/v1/memories", json=brought(s) | {"reason": s})
    ):
        assert answer.status_code == 201, (string, answer.text)
        if is_kept(string) and is_kept(others[string]):
            sent = brought(string)
            sent |= {"tags": fold_tags(sent["tags"])} if "tags" in sent else {}
            assert {name: answer.json()[name] for name in sent} == sent
    for string in list(others)[::5]:
        answer = await api.patch(f"/api/v1/memories/{changed}", json=fields(string))
        assert answer.status_code == 200, (string, answer.text)
        if is_kept(string) and is_kept(others[string]):
            sent = fields(string)
            sent |= {"tags": fold_tags(sent["tags"])} if "tags" in sent else {}
            assert {name: answer.json()[name] for name in sent} == sent


async def test_in_a_submitted_reflection(api: AsyncClient, strings: list[str]) -> None:
    texts = [string for string in strings if string.strip()]
    pairs = dict(zip(texts[::2], texts[1::2], strict=False))

    def body(first: str) -> dict[str, Any]:
        tags = {"tags": [first]} if len(first) <= 64 else {}
        names = {"session_id": first} if is_name(first) else {}
        texts = {"reflection_text": first, "strategy_text": pairs[first]}
        return texts | tags | names | {"metadata": {first: pairs[first]}}

    async for string, answer in each(
        list(pairs), lambda s: api.post("/api/v1/reflections", json=body(s))
    ):
        assert answer.status_code in (200, 201), (string, answer.text)


async def test_in_a_generated_reflection(api: AsyncClient, strings: list[str]) -> None:
    """The words of the trace pass through the whole engine, four of them a run."""

    def event(kind: str, string: str) -> dict[str, Any]:
        names = {"tool_name": string, "event_id": string} if is_name(string) else {}
        return {"event_type": kind, "content": string, "metadata": {"k": string}} | names

    def body(start: int) -> dict[str, Any]:
        one, two, three, four = (strings[(start + step) % len(strings)] for step in range(4))
        return {
            "events": [
                event("user_message", one),
                event("tool_call", two),
                event("tool_response", three) | {"error": three},
                event("tool_call", two),
                event("error_event", four) | {"error": {"message": four}},
            ],
            "outcome": "failure",
            "error": {"message": two},
            "task_description": three,
            "task_goal": four,
        }

    for start in range(0, len(strings), 4 * AT_ONCE):
        part = range(start, min(start + 4 * AT_ONCE, len(strings)), 4)
        send = (api.post("/api/v1/reflections/generate", json=body(at)) for at in part)
        for at, answer in zip(part, await asyncio.gather(*send), strict=True):
            assert answer.status_code == 200, (strings[at : at + 4], answer.text)


async def test_in_every_search(api: AsyncClient, strings: list[str]) -> None:
    await new_memory(api, "something to find", tags=["a"])
    for string in strings:
        tags = {"tags": [string], "section_filter": [string]} if 1 <= len(string) <= 64 else {}
        names = {"project_id": string} if is_name(string) else {}
        body = {"query_text": string} | (tags | names if len(string) % 2 else {})
        answer = await api.post("/api/v1/search", json=body)
        assert answer.status_code == 200, (string, answer.text)
        answer = await api.post("/api/v1/search", json={"query_text": "x", "playbook": string})
        unknown = 404 if is_playbook_name(string) else 422
        assert answer.status_code == unknown, (string, answer.text)
    for string in strings[::3]:
        answer = await api.post("/api/v1/reflections/query", json={"query_text": string})
        assert answer.status_code == 200, (string, answer.text)


async def test_in_every_query_parameter(api: AsyncClient, strings: list[str]) -> None:
    for path, names in (
        ("/api/v1/traces", ("project_id", "task_key")),
        ("/api/v1/memories", ("project", "tag")),
        ("/api/v1/runs", ("project_id", "kind")),
    ):
        async for string, answer in each(
            strings[::6], lambda s, p=path, n=names: api.get(p, params=dict.fromkeys(n, s))
        ):
            if answer.status_code == 422:
                assert len(string) > 64
            else:
                assert answer.json() == {"items": [], "next_cursor": None}
    for name in ("cursor", "limit", "outcome", "trace_id", "kind", "status", "layer", "state"):
        path = {"outcome": "traces", "trace_id": "runs", "state": "runs"}.get(name, "memories")
        for string in strings[::16]:
            answer = await api.get(f"/api/v1/{path}", params={name: string})
            assert answer.status_code in (200, 422), (name, string, answer.text)


async def test_in_keys_and_tenants(api, http, tenant, strings: list[str]) -> None:
    async for string, answer in each(
        strings[::4],
        lambda s: api.post("/api/v1/keys", json={"name": s or None, "project_id": s or None}),
    ):
        assert answer.status_code == (201 if len(string) <= 128 else 422)
    for string in strings:
        slug = f"{tenant.id}-{string}"
        answer = await http.post(
            "/api/v1/tenants", json={"name": slug}, headers=tenant.auth("operator")
        )
        assert answer.status_code in (200, 201, 422), (string, answer.text)
    for string in strings[::4]:
        answer = await api.post("/api/v1/search", json={"query_text": "x", "tenant_id": string})
        assert answer.status_code in (403, 422)


async def test_in_outcome_and_evidence(api: AsyncClient, strings: list[str]) -> None:
    trace_id = await new_trace(api, outcome=None)
    for string in strings[::6]:
        body = {
            "outcome": "failure",
            "test_report": string,
            "ground_truth": {string: string},
            "error": {"message": string},
            "reflect": "never",
        }
        answer = await api.post(f"/api/v1/traces/{trace_id}/outcome", json=body)
        assert answer.status_code == 200, (string, answer.text)
        if is_kept(string):
            back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
            assert (back["test_report"], back["ground_truth"]) == (string, {string: string})


async def test_in_request_headers(api: AsyncClient, strings) -> None:
    for string in strings[::8]:
        printable = string.encode("ascii", "ignore").decode()
        printable = "".join(c for c in printable if c.isprintable())[:255] or "x"
        answer = await api.post(
            "/api/v1/search", json={"query_text": "x"}, headers={"Idempotency-Key": printable}
        )
        assert answer.status_code == 200
