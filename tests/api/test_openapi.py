"""The OpenAPI document: every route has an example, and the examples are true."""

from __future__ import annotations

import re
from difflib import unified_diff
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema
import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient

from memory_api.commands.export_openapi import openapi_text
from memory_api.evaluation_reports.schemas import CREATE_EXAMPLE as REPORT
from tests.rules.test_route_auth import NEEDS, OPEN
from tests.support.api_calls import new_key, new_memory, new_trace
from tests.support.cases import each_case
from tests.support.openapi_responses import with_statuses
from tests.support.playbook_api import Book

Operation = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
NDJSON = {"GET /api/v1/export"}
"""Routes that answer NDJSON instead of JSON."""
ROUTES = sorted(r for r in {*NEEDS} - NDJSON if r.split()[1].startswith(("/api", "/health")))
QUERY = {
    "GET /api/v1/playbooks/{playbook}/diff": {"from": "0"},
    "POST /api/v1/collections/{collection}/documents": {"source": "a.txt"},
    "GET /api/v1/agents/runs/{agent_run_id}/events": {"follow": "false"},
}
"""What a route must be asked with."""
STREAMS = {"GET /api/v1/agents/runs/{agent_run_id}/events"}
"""Routes that answer with server-sent events."""
NOT_YET = {
    "POST /api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay": 404,
    "POST /api/v1/agents/runs/{agent_run_id}/feedback": 409,
    "POST /api/v1/agents/runs/{agent_run_id}/interventions/{intervention_id}/answer": 404,
}
"""Routes that are for a run that a worker has brought further."""


def operation_of(app: FastAPI, route: str) -> Operation:
    """An operation with its parameters and responses instead of references to them."""
    method, path = route.split()
    operation = with_statuses(app.openapi())["paths"][path][method.lower()]
    responses = {s: resolve(app, response) for s, response in operation["responses"].items()}
    parameters = [resolve(app, each) for each in operation.get("parameters", [])]
    return operation | {"responses": responses, "parameters": parameters}


def resolve(app: FastAPI, part: Operation) -> Operation:
    """A schema, parameter or response behind a reference."""
    if "$ref" not in part:
        return part
    kind, name = part["$ref"].split("/")[-2:]
    return app.openapi()["components"][kind][name]


def validate(app: FastAPI, schema: Operation, value: Any) -> None:
    whole = schema | {"components": app.openapi()["components"]}
    jsonschema.Draft202012Validator(whole).validate(value)


def request_example(operation: Operation) -> Any:
    content = operation.get("requestBody", {}).get("content", {})
    return content.get("application/json", {}).get("example")


def answer_examples(app: FastAPI, operation: Operation) -> list[tuple[Operation, Any]]:
    """Each example of a successful answer with the schema it is of."""
    found: list[tuple[Operation, Any]] = []
    for status, answer in operation["responses"].items():
        content = answer.get("content", {}).get("application/json", {})
        if not status.startswith("2") or not content:
            continue
        if "example" in content:
            found.append((content["schema"], content["example"]))
        for schema in (content["schema"], *content["schema"].get("anyOf", ())):
            whole = resolve(app, schema)
            items = resolve(app, whole.get("properties", {}).get("items", {}).get("items", {}))
            for part in (whole, items):
                found += [(part, example) for example in part.get("examples", ())]
    return found


def test_document_contains_every_route(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    shown = {f"{m.upper()} {p}" for p, ms in paths.items() for m in ms}
    assert shown == {*ROUTES, *NDJSON}


@each_case("route", ROUTES)
def test_every_route_has_an_example(app: FastAPI, route: str) -> None:
    operation = operation_of(app, route)
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]
        assert any("example" in media_type for media_type in content.values())
    elif "204" not in operation["responses"] and route not in STREAMS:
        assert answer_examples(app, operation)


@each_case("route", ROUTES)
def test_response_examples_match_their_schema(app: FastAPI, route: str) -> None:
    for schema, example in answer_examples(app, operation_of(app, route)):
        if isinstance(example, dict):  # FastAPI leaves null out of the document
            bases = [resolve(app, base) for base in schema.get("allOf", ())]
            required = [name for each in (*bases, schema) for name in each.get("required", ())]
            example = dict.fromkeys(required) | example
        validate(app, schema, example)


@each_case("route", ROUTES)
def test_every_route_documents_errors_and_scopes(app: FastAPI, route: str) -> None:
    operation = operation_of(app, route)
    errors = {s: a for s, a in operation["responses"].items() if s >= "4" and "content" in a}
    assert {"500"} <= errors.keys()
    if NEEDS[route] != OPEN:
        assert {"401", "403", "422", "503"} <= errors.keys()
    if NEEDS[route] != OPEN and not route.startswith("GET"):
        assert {"409", "413"} <= errors.keys()
        assert "Idempotency-Key" in {p["name"] for p in operation["parameters"]}
    for status, answer in errors.items():
        if route == "GET /health/ready" and status == "503":
            continue
        content = answer["content"]["application/problem+json"]
        assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
        for code, example in content["examples"].items():
            assert example == {"$ref": f"#/components/examples/{code}"}
            problem = app.openapi()["components"]["examples"][code]["value"]
            assert (problem["code"], str(problem["status"])) == (code, status)
            validate(app, content["schema"], problem)
    assert app.openapi()["security"]
    assert ("security" not in operation) == (NEEDS[route] != OPEN)


@each_case("route", ROUTES)
def test_every_operation_has_a_name_a_summary_and_one_tag(app: FastAPI, route: str) -> None:
    operation = operation_of(app, route)
    assert operation["operationId"].isidentifier()
    assert operation["summary"][0].isupper()
    assert not operation["summary"].endswith(".")
    assert operation["description"].endswith(".")
    assert len(operation["tags"]) == 1
    assert operation["tags"][0] in {tag["name"] for tag in app.openapi()["tags"]}


def test_operation_ids_are_unique(app: FastAPI) -> None:
    names = [operation_of(app, route)["operationId"] for route in ROUTES]
    assert len(names) == len(set(names))


def test_components_are_named_like_their_classes(app: FastAPI) -> None:
    """FastAPI writes a module or a type parameter into a name that is not unique."""
    for name, schema in app.openapi()["components"]["schemas"].items():
        assert re.fullmatch(r"([A-Z][a-z]+)+", name), name
        assert schema.get("title", name) == name
        assert schema.get("description") or "enum" in schema, name


def test_committed_document_is_that_of_the_code() -> None:
    """`make openapi` writes it."""
    committed = (ROOT / "openapi.json").read_text(encoding="utf-8").splitlines()
    current = openapi_text().splitlines()
    difference = "\n".join(
        unified_diff(committed, current, "openapi.json", "the code", lineterm="", n=2)
    )
    assert not difference, f"Run `make openapi` and commit the result.\n{difference[:8000]}"


async def new_playbook(api: AsyncClient) -> dict[str, str]:
    """A playbook with a bullet in it, and deltas that wait for a person."""
    book = Book(api, "support")
    await book.deltas({"type": "ADD", "section": "mis", "content": "there is one"})
    await api.patch(book.url, json={"review_mode": "required"})
    held = await book.post("deltas", deltas=[{"type": "ADD", "content": "another"}])
    return {
        "playbook": book.name,
        "collection": book.name,
        "key": "mis-00001",
        "proposal_id": held.json()["proposal_id"],
    }


async def new_ids(api: AsyncClient) -> dict[str, str]:
    """What the paths of routes may name."""
    run = {"events": [{"event_type": "tool_call"}], "outcome": "error"}
    await new_key(api, "read")
    return {
        "trace_id": await new_trace(api, state="open", outcome=None),
        "memory_id": await new_memory(api, "something"),
        "run_id": (await api.post("/api/v1/traces", json=run)).json()["run_id"],
        "task": "upkeep",
        "question": "bullets",
        "tenant": (await api.get("/api/v1/tenants")).json()["items"][0]["slug"],
        "erasure_id": await new_erasure(api),
        "key_id": (await api.get("/api/v1/keys")).json()["items"][-1]["id"],
        **await new_playbook(api),
        **await new_document(api),
        "webhook_id": await new_webhook(api),
        "report_id": await new_report(api),
        "delivery_id": str(UUID(int=7)),
    }


async def new_webhook(api: AsyncClient) -> str:
    return (await api.post("/api/v1/webhooks", json={"url": "https://192.0.2.1/"})).json()["id"]


async def new_report(api: AsyncClient) -> str:
    return (await api.post("/api/v1/evaluation-reports", json=REPORT)).json()["id"]


async def new_erasure(api: AsyncClient) -> str:
    person = {"target_kind": "person", "target_id": "nobody"}
    return (await api.post("/api/v1/erasures", json=person)).json()["id"]


async def new_document(api: AsyncClient) -> dict[str, str]:
    """A document of a collection that is named like the playbook."""
    url = "/api/v1/collections"
    await api.post(url, json={"name": "support"})
    added = await api.post(f"{url}/support/documents", params={"source": "b.txt"}, content=b"Text")
    return {"document_id": added.json()["id"], **await new_agent_run(api)}


async def new_agent_run(api: AsyncClient) -> dict[str, str]:
    """A run of the agent that has not begun."""
    made = await api.post("/api/v1/agents/runs", json={"query": "Can it be refunded?"})
    return {"agent_run_id": made.json()["id"], "intervention_id": str(UUID(int=7))}


@pytest.mark.smoke
async def test_every_example_of_a_read_works_as_printed(
    api: AsyncClient, app, tenant, http
) -> None:
    ids = await new_ids(api)
    for route in ROUTES:
        if route.startswith("GET "):
            await try_example(app, tenant, http, route, ids)


@pytest.mark.smoke
@pytest.mark.parametrize("route", [route for route in ROUTES if not route.startswith("GET ")])
async def test_every_example_of_a_write_works_as_printed(
    api: AsyncClient, app, tenant, http, route
) -> None:
    await try_example(app, tenant, http, route, await new_ids(api))


async def try_example(app, tenant, http, route: str, ids: dict[str, str]) -> None:
    method, path = route.split()
    operation = operation_of(app, route)
    body = request_example(operation)
    headers = tenant.auth("operator" if NEEDS[route] == "operator" else "admin")
    answer = await http.request(
        method, path.format(**ids), json=body, headers=headers, params=QUERY.get(route)
    )
    if route == "POST /api/v1/runs/{run_id}/retry":
        assert answer.status_code == 409  # a run that waits cannot be retried
        return
    if route in NOT_YET:
        assert answer.status_code == NOT_YET[route], answer.text
        return
    assert answer.is_success, (route, answer.text)
    documented = operation["responses"][str(answer.status_code)]
    if answer.content and "text/event-stream" not in documented["content"]:
        schema = documented["content"]["application/json"]["schema"]
        validate(app, schema, answer.json())
