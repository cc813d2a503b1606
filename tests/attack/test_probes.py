"""Probes of all routes of openapi.json: keys of one project, other tenants, hostile strings."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient

from memory_api.runtime import Runtime
from sdk.generator.schemas import parameters
from tests.support.api_calls import count, event, new_key, new_memory, new_trace
from tests.support.playbook_api import Book

PATHOLOGICAL = (
    "",
    "\x00",
    "\ud800",
    "' or 1=1 --",
    "../../etc/passwd",
    "%00%0a%0d",
    "\r\nX-Injected: 1",
    "{{7*7}}${7*7}",
    "(" * 5_000,
    "a" * 20_000,
    "-1e999",
    "9" * 5_000,
    "\u202e\u200b\ufeff",
    "日本" * 100,
    [[[]]],
    {"$ne": None},
    None,
    True,
    2**63,
)
FUZZED_REQUESTS = int(os.environ.get("HANSEI_FUZZ", "300"))
"""In CI. A longer run: `HANSEI_FUZZ=10000`."""
Operation = tuple[str, str, dict[str, Any]]


def operations(app: FastAPI) -> Iterator[Operation]:
    """Each operation, with its parameters instead of references to them."""
    document = app.openapi()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            found = operation | {"parameters": parameters(document, operation)}
            yield method.upper(), path, found


def example_body(operation: dict[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {})
    return content.get("application/json", {}).get("example")


def query_names(operation: dict[str, Any]) -> list[str]:
    return [p["name"] for p in operation["parameters"] if p["in"] == "query"]


async def fill(api: AsyncClient, drain: Any, tenant: Any, marker: str) -> dict[str, str]:
    """A trace with its runs, a memory, a playbook and a proposal, a document, an agent run that
    waits for a person, and a webhook, in the project `other`.
    """
    book = Book(api)
    delta = {"type": "ADD", "section": "pat", "content": f"Use {marker}"}
    url = f"{book.url}/deltas"
    (await api.post(url, json={"deltas": [delta], "project_id": "other"})).raise_for_status()
    events = [event(marker), event(f"{marker} not found", event_type="error_event")]
    trace_id = await new_trace(
        api, reflect="always", events=events, project_id="other", playbook="book"
    )
    await drain(tenant.id)
    runs = await api.get("/api/v1/runs", params={"project_id": "other"})
    settings = {"review_mode": "required", "project_id": "other"}
    (await api.patch(book.url, json=settings)).raise_for_status()
    held = {"deltas": [delta | {"content": f"Avoid {marker}"}], "project_id": "other"}
    proposal = (await api.post(url, json=held)).json()["proposal_id"]
    of_other = {"project_id": "other"}
    collection = {"name": "book", "description": marker} | of_other
    (await api.post("/api/v1/collections", json=collection)).raise_for_status()
    document = await api.post(
        "/api/v1/collections/book/documents",
        params={"source": f"{marker}.txt"} | of_other,
        content=f"The word is {marker}.",
        headers={"Content-Type": "text/plain"},
    )
    plan = {"steps": [{"step_id": 1, "action": "ask_user", "description": "d", "query": marker}]}
    agent_run = await api.post(
        "/api/v1/agents/runs", json={"query": marker, "plan": plan} | of_other
    )
    await drain(tenant.id)
    run_url = f"/api/v1/agents/runs/{agent_run.json()['id']}"
    (intervention,) = (await api.get(f"{run_url}/interventions")).json()["items"]
    webhook = {"url": f"https://{marker}.example/hook"} | of_other
    made = (await api.post("/api/v1/webhooks", json=webhook)).json()
    await api.post(f"/api/v1/webhooks/{made['id']}/test")
    deliveries = await api.get(f"/api/v1/webhooks/{made['id']}/deliveries")
    return {
        "agent_run_id": agent_run.json()["id"],
        "intervention_id": intervention["id"],
        "document_id": document.json()["id"],
        "webhook_id": made["id"],
        "delivery_id": deliveries.json()["items"][0]["id"],
        "trace_id": trace_id,
        "run_id": runs.json()["items"][0]["id"],
        "memory_id": await new_memory(api, f"{marker} fact", project_id="other"),
        "playbook": "book",
        "collection": "book",
        "key": "pat-00001",
        "proposal_id": proposal,
    }


def with_ids(path: str, ids: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: ids.get(match[1], str(uuid4())), path)


async def test_key_of_a_project_reaches_no_other(
    app: FastAPI, api: AsyncClient, http: AsyncClient, tenant: Any, runtime: Runtime, drain: Any
) -> None:
    marker = f"zebra{uuid4().hex[:8]}"
    ids = await fill(api, drain, tenant, marker)
    bound = await new_key(api, "admin", project_id="mine")
    before = await snapshot(api, ids)
    for method, path, operation in operations(app):
        if path == "/api/v1/tenants" or not path.startswith("/api/"):
            continue
        for project in (None, "other"):
            is_named = project and "project_id" in query_names(operation)
            params = {"project_id": "other"} if is_named else {}
            body = example_body(operation)
            if isinstance(body, dict):
                body = {k: v for k, v in body.items() if k != "project_id"}
                body |= {"project_id": project} if project else {}
                body |= {"query_text": marker} if "query_text" in body else {}
            answer = await http.request(
                method, with_ids(path, ids), params=params, json=body, headers=bound
            )
            assert answer.status_code < 500, (method, path, answer.text)
            shown = answer.text.replace(f'"{marker}"', "")  # the query itself
            assert marker not in shown, (method, path, project, answer.text[:500])
    assert await snapshot(api, ids) == before


async def snapshot(api: AsyncClient, ids: dict[str, str]) -> list[Any]:
    """What an administrator of the tenant sees in the project `other`."""
    params = {"project_id": "other"}
    paths = ("/traces", "/memories", "/playbooks/book/bullets", "/playbooks/book/proposals")
    seen: list[Any] = [(await api.get(f"/api/v1{p}", params=params)).json() for p in paths]
    seen.append((await api.get(f"/api/v1/runs/{ids['run_id']}")).json()["state"])
    seen.append((await api.get(f"/api/v1/agents/runs/{ids['agent_run_id']}")).json()["state"])
    url = "/api/v1/collections/book/documents"
    documents = (await api.get(url, params=params)).json()["items"]
    webhooks = (await api.get("/api/v1/webhooks")).json()["items"]
    assert len(documents) == len(webhooks) == 1
    seen += [documents, webhooks]
    return seen


async def test_other_tenant_reaches_nothing(
    app: FastAPI, api: AsyncClient, http: AsyncClient, tenant: Any, make_tenant: Any,
    runtime: Runtime, drain: Any,
) -> None:  # fmt: skip
    marker = f"zebra{uuid4().hex[:8]}"
    ids = await fill(api, drain, tenant, marker)
    stranger = (await make_tenant()).auth()
    before = await snapshot(api, ids), await count(runtime, tenant.id)
    for method, path, operation in operations(app):
        if not path.startswith("/api/"):
            continue
        params = {"project_id": "other"} if "project_id" in query_names(operation) else {}
        body = example_body(operation)
        for changed in ({}, {"tenant_id": str(tenant.id)}):
            sent = body | changed if isinstance(body, dict) else body
            answer = await http.request(
                method, with_ids(path, ids), params=params, json=sent, headers=stranger
            )
            assert answer.status_code < 500, (method, path, answer.text)
            assert marker not in answer.text, (method, path)
    assert (await snapshot(api, ids), await count(runtime, tenant.id)) == before


async def test_conversation_of_another_tenant_or_project_is_not_continued(
    api: AsyncClient, http: AsyncClient, tenant: Any, make_tenant: Any, drain: Any
) -> None:
    plan = {"steps": [{"step_id": 1, "action": "reasoning", "description": "d", "query": "q"}]}
    asked = {"query": "What is the vault code?", "plan": plan, "project_id": "other"}
    run = await api.post("/api/v1/agents/runs", json=asked)
    await drain(tenant.id)
    follow_up = {"query": "And of the other one?", "previous_run_id": run.json()["id"]}
    stranger, mine = (await make_tenant()).auth(), await new_key(api, "admin", project_id="mine")
    for headers in (stranger, mine):
        answer = await http.post("/api/v1/agents/runs", json=follow_up, headers=headers)
        assert answer.status_code == 422, answer.text
        assert "vault" not in answer.text


def mutate(value: Any, chance: random.Random) -> Any:
    """The value with one part replaced by a pathological one."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(sorted(value))
        return value | {key: mutate(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.6:
        return [mutate(value[0], chance), *value[1:]]
    return chance.choice(PATHOLOGICAL)


@pytest.mark.parametrize("seed", [14])
async def test_pathological_values_are_answered(app: FastAPI, api: AsyncClient, seed: int) -> None:
    """No request makes the service fail: every answer is below 500 and JSON, text or empty."""
    chance = random.Random(seed)
    known = [o for o in operations(app) if "/keys/" not in o[1] and o[1] != "/api/v1/health/ready"]
    for _ in range(FUZZED_REQUESTS):
        method, path, operation = chance.choice(known)
        body = example_body(operation)
        text = chance.choice([p for p in PATHOLOGICAL if isinstance(p, str) and "\ud800" not in p])
        segment = re.sub(r"[^\w-]", "x", text)[:200] or "x"
        url = re.sub(r"\{\w+\}", segment, path)
        names = query_names(operation)
        params = {chance.choice(names): text[:3_000]} if names and chance.random() < 0.5 else {}
        answer = await send_mutated(api, method, url, params, mutate(body, chance))
        assert answer.status_code < 500, (seed, method, url, params, answer.text[:500])
        assert "X-Injected" not in answer.headers


async def send_mutated(
    api: AsyncClient, method: str, url: str, params: dict[str, str], body: Any
) -> Any:
    raw = json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Prefer": "respond-async"}
    return await api.request(
        method, url, params=params, content=None if method == "GET" else raw, headers=headers
    )
