"""Every route is on this list with the scope it asks for; a route that is not turns the test
red."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from httpx2 import AsyncClient

from tests.support.cases import each_case
from tests.support.problems import assert_problem, without_instance

OPEN = "open"
"""Answers without a key."""

PROTOCOL = "mcp"
"""Needs a key and is no operation of the OpenAPI document: tests/api/test_mcp.py."""

NEEDS = {
    "GET /docs": OPEN,
    "GET /docs/assets": OPEN,
    "GET /health": OPEN,
    "GET /health/ready": OPEN,
    "GET /metrics": OPEN,
    "GET /openapi.json": OPEN,
    "POST /mcp": PROTOCOL,
    "POST /v1/traces": "write",
    "DELETE /api/v1/agents/calibration": "write",
    "GET /api/v1/agents/calibration": "read",
    "GET /api/v1/agents/runs": "read",
    "GET /api/v1/agents/runs/{agent_run_id}": "read",
    "GET /api/v1/agents/runs/{agent_run_id}/execution": "read",
    "GET /api/v1/agents/runs/{agent_run_id}/events": "read",
    "GET /api/v1/agents/runs/{agent_run_id}/interventions": "read",
    "POST /api/v1/agents/runs": "write",
    "POST /api/v1/agents/runs/{agent_run_id}/cancel": "write",
    "POST /api/v1/agents/runs/{agent_run_id}/feedback": "write",
    "POST /api/v1/agents/runs/{agent_run_id}/interventions/{intervention_id}/answer": "write",
    "DELETE /api/v1/collections/{collection}": "write",
    "DELETE /api/v1/collections/{collection}/documents/{document_id}": "write",
    "GET /api/v1/collections": "read",
    "GET /api/v1/collections/{collection}": "read",
    "GET /api/v1/collections/{collection}/documents": "read",
    "GET /api/v1/collections/{collection}/documents/{document_id}": "read",
    "POST /api/v1/collections": "write",
    "POST /api/v1/collections/{collection}/documents": "write",
    "POST /api/v1/collections/{collection}/rechunk": "write",
    "POST /api/v1/collections/{collection}/search": "read",
    "GET /api/v1/evaluation-reports": "read",
    "GET /api/v1/evaluation-reports/{report_id}": "read",
    "POST /api/v1/evaluation-reports": "write",
    "DELETE /api/v1/evaluation-reports/{report_id}": "write",
    "DELETE /api/v1/keys/{key_id}": "admin",
    "DELETE /api/v1/memories/{memory_id}": "write",
    "GET /api/v1/analytics": "read",
    "GET /api/v1/analytics/{question}": "read",
    "GET /api/v1/audit-log": "admin",
    "GET /api/v1/budgets": "read",
    "GET /api/v1/keys": "admin",
    "DELETE /api/v1/traces/{trace_id}": "write",
    "GET /api/v1/erasures": "admin",
    "GET /api/v1/erasures/{erasure_id}": "admin",
    "POST /api/v1/erasures": "admin",
    "GET /api/v1/export": "admin",
    "GET /api/v1/retention": "read",
    "PUT /api/v1/retention": "admin",
    "POST /api/v1/tenants/{tenant}/suspend": "operator",
    "POST /api/v1/tenants/{tenant}/resume": "operator",
    "GET /api/v1/maintenance": "read",
    "POST /api/v1/maintenance/{task}": "admin",
    "GET /api/v1/memories": "read",
    "GET /api/v1/memories/{memory_id}": "read",
    "GET /api/v1/memories/{memory_id}/links": "read",
    "GET /api/v1/memories/{memory_id}/revisions": "read",
    "GET /api/v1/runs": "read",
    "GET /api/v1/runs/{run_id}": "read",
    "GET /api/v1/tenants": "read",
    "GET /api/v1/traces": "read",
    "GET /api/v1/traces/{trace_id}": "read",
    "GET /api/v1/traces/{trace_id}/evaluations": "read",
    "GET /api/v1/traces/{trace_id}/events": "read",
    "GET /problems/{code}": OPEN,
    "PATCH /api/v1/memories/{memory_id}": "write",
    "DELETE /api/v1/playbooks/{playbook}": "write",
    "DELETE /api/v1/playbooks/{playbook}/bullets/{key}": "write",
    "GET /api/v1/playbooks": "read",
    "GET /api/v1/playbooks/{playbook}": "read",
    "GET /api/v1/playbooks/{playbook}/bullets": "read",
    "GET /api/v1/playbooks/{playbook}/bullets/{key}": "read",
    "GET /api/v1/playbooks/{playbook}/bullets/{key}/verdicts": "read",
    "GET /api/v1/playbooks/{playbook}/bullets/{key}/provenance": "read",
    "GET /api/v1/playbooks/{playbook}/bullets/{key}/versions": "read",
    "GET /api/v1/playbooks/{playbook}/diff": "read",
    "GET /api/v1/playbooks/{playbook}/effects": "read",
    "GET /api/v1/playbooks/{playbook}/lessons": "read",
    "GET /api/v1/playbooks/{playbook}/versions": "read",
    "GET /api/v1/playbooks/{playbook}/proposals": "read",
    "PATCH /api/v1/playbooks/{playbook}": "write",
    "PATCH /api/v1/playbooks/{playbook}/bullets/{key}": "write",
    "POST /api/v1/playbooks/{playbook}/bullets": "write",
    "POST /api/v1/playbooks/{playbook}/bullets/{key}/verdicts": "write",
    "POST /api/v1/playbooks/{playbook}/consolidate": "write",
    "POST /api/v1/playbooks/{playbook}/deltas": "write",
    "POST /api/v1/playbooks/{playbook}/proposals/{proposal_id}/accept": "admin",
    "POST /api/v1/playbooks/{playbook}/proposals/{proposal_id}/reject": "admin",
    "POST /api/v1/playbooks/{playbook}/render": "read",
    "POST /api/v1/playbooks/{playbook}/restore": "write",
    "POST /api/v1/playbooks/{playbook}/search": "read",
    "GET /api/v1/usage": "read",
    "PUT /api/v1/budgets": "admin",
    "PUT /api/v1/playbooks/{playbook}": "write",
    "POST /api/v1/keys": "admin",
    "POST /api/v1/memories": "write",
    "POST /api/v1/reflections": "write",
    "POST /api/v1/reflections/generate": "write",
    "POST /api/v1/reflections/query": "read",
    "POST /api/v1/runs/{run_id}/retry": "write",
    "POST /api/v1/search": "read",
    "POST /api/v1/tenants": "operator",
    "GET /api/v1/webhooks": "admin",
    "POST /api/v1/webhooks": "admin",
    "PATCH /api/v1/webhooks/{webhook_id}": "admin",
    "DELETE /api/v1/webhooks/{webhook_id}": "admin",
    "POST /api/v1/webhooks/{webhook_id}/rotate-secret": "admin",
    "POST /api/v1/webhooks/{webhook_id}/test": "admin",
    "GET /api/v1/webhooks/{webhook_id}/deliveries": "admin",
    "POST /api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay": "admin",
    "POST /api/v1/workflow/run": "write",
    "POST /workflow/run": "write",
    "POST /api/v1/traces": "write",
    "POST /api/v1/traces/{trace_id}/close": "write",
    "POST /api/v1/traces/{trace_id}/events": "write",
    "POST /api/v1/traces/{trace_id}/outcome": "write",
    "POST /api/v1/trajectories/reflect": "write",
    "POST /api/v1/transcripts/reflect": "write",
}
GUARDED = sorted(route for route, scope in NEEDS.items() if scope not in (OPEN, PROTOCOL))
WEAKER = {
    "read": ("operator",),
    "write": ("read", "operator"),
    "admin": ("read", "write", "operator"),
    "operator": ("read", "write", "admin"),
}
"""Keys that are not enough: a scope implies those before it, and operator implies nothing."""

UNDOCUMENTED = {"POST /v1/traces"}
"""Not in the OpenAPI document: OTLP has its own specification."""

NDJSON = {"Content-Type": "application/x-ndjson"}


def request_of(app: FastAPI, route: str) -> tuple[str, str, object]:
    """Method, path and the documented example body of a route."""
    method, path = route.split()
    if route in UNDOCUMENTED:
        return method, path, {}
    shown_path = path if path.startswith("/api") else f"/api/v1{path}"
    operation = app.openapi()["paths"][shown_path][method.lower()]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return method, re.sub(r"\{\w+\}", str(UUID(int=7)), path), body.get("example")


def routes_of(app: FastAPI) -> set[str]:
    found: set[str] = set()
    for route in iter_route_contexts(app.routes):
        path = route.path or getattr(route.original_route, "path", "")
        methods = (getattr(route.original_route, "methods", None) or {"GET"}) - {"HEAD"}
        if path != "/" and not path.startswith("/console"):  # tests/console checks the pages
            found |= {f"{method} {path}" for method in methods}
    return found


def test_every_route_is_on_the_list(app: FastAPI) -> None:
    assert routes_of(app) == set(NEEDS)


@each_case("route", GUARDED)
async def test_request_without_key_is_401(http: AsyncClient, app: FastAPI, route: str) -> None:
    method, path, body = request_of(app, route)
    answer = await http.request(method, path, json=body)
    assert_problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("route", GUARDED)
async def test_key_with_too_low_scope_is_403(http, app: FastAPI, tenant, route: str) -> None:
    method, path, body = request_of(app, route)
    for scope in WEAKER[NEEDS[route]]:
        answer = await http.request(method, path, json=body, headers=tenant.auth(scope))
        assert_problem(answer, 403, "forbidden")


@pytest.mark.parametrize("route", GUARDED)
async def test_key_with_scope_is_accepted(http, app, tenant, route: str) -> None:
    method, path, body = request_of(app, route)
    answer = await http.request(method, path, json=body, headers=tenant.auth(NEEDS[route]))
    assert answer.status_code in (200, 201, 202, 204, 404, 422)


async def test_hidden_ndjson_route_requires_key(http: AsyncClient, tenant) -> None:
    line = b'{"events":[{"event_type":"tool_call"}]}\n'
    answer = await http.post("/api/v1/traces", content=line, headers=NDJSON)
    assert_problem(answer, 401, "unauthorized")
    answer = await http.post("/api/v1/traces", content=line, headers=NDJSON | tenant.auth("read"))
    assert_problem(answer, 403, "forbidden")


@each_case("raw", [b"{", b'"\xff"', b"[" * 100_000, b'{"k": NaN}'])
@each_case("path", ["/api/v1/traces", "/api/v1/search", "/api/v1/keys"])
async def test_key_is_checked_before_body(http: AsyncClient, raw: bytes, path: str) -> None:
    """Nobody without a key learns how we read what they send."""
    json_type = {"Content-Type": "application/json"}
    answer = await http.post(path, content=raw, headers=json_type)
    assert_problem(answer, 401, "unauthorized")
    answer = await http.post(path, content=raw, headers=json_type | {"Idempotency-Key": "k"})
    assert_problem(answer, 401, "unauthorized")


@each_case(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer hsk_",
        "Basic dXNlcjpwYXNz",
        "hsk_aaaaaaaaaaaaaaaaaaaaaaaaaa_" + "x" * 43,
        "Bearer hsk_aaaaaaaaaaaaaaaaaaaaaaaaaa_" + "x" * 43,
        "Bearer hsk_77777777777777777777777777_" + "x" * 43,
        "Bearer hsk_aaaaaaaaaaaaaaaaaaaaaaaaaa_" + "x" * 5000,
        "Bearer hsk_AAAAAAAAAAAAAAAAAAAAAAAAAA_" + "x" * 43,
        "Bearer hsk_aaaaaaaaaaaaaaaaaaaaaaaaaa_" + "' or 1=1 --" * 4,
        "Bearer \xff\xfe",
    ],
)
async def test_every_invalid_key_gets_same_401(http: AsyncClient, header: str) -> None:
    answer = await http.get("/api/v1/traces", headers={"Authorization": header.encode("latin-1")})
    reference = await http.get("/api/v1/traces")
    assert_problem(answer, 401, "unauthorized")
    assert without_instance(answer) == without_instance(reference)


async def test_secret_with_other_tenant_is_401(http, make_tenant) -> None:
    mine, other = await make_tenant(), await make_tenant()
    secret = mine.keys["admin"].split("_", 2)[2]
    claim = other.keys["admin"].split("_", 2)[1]
    forged = {"Authorization": f"Bearer hsk_{claim}_{secret}"}
    assert_problem(await http.get("/api/v1/traces", headers=forged), 401, "unauthorized")
