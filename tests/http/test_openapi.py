"""The OpenAPI document: every route has an example, and the examples are true."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient

from tests.http.calls import new_key, new_memory, new_trace
from tests.playbook.rows import Book
from tests.rules.test_route_auth import NEEDS, OPEN

Operation = dict[str, Any]
ROUTES = sorted(r for r in NEEDS if r.split()[1].startswith(("/api", "/health", "/workflow")))
QUERY = {"GET /api/v1/playbooks/{name}/diff": {"from": "0"}}
"""What a route must be asked with."""


def operation_of(app: FastAPI, route: str) -> Operation:
    method, path = route.split()
    return app.openapi()["paths"][path][method.lower()]


def resolve(app: FastAPI, schema: Operation) -> Operation:
    name = schema.get("$ref")
    return app.openapi()["components"]["schemas"][name.rpartition("/")[2]] if name else schema


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


def test_the_document_holds_every_route(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    shown = {f"{m.upper()} {p}" for p, ms in paths.items() for m in ms}
    assert shown == set(ROUTES)


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_has_an_example(app: FastAPI, route: str) -> None:
    operation = operation_of(app, route)
    if "requestBody" in operation:
        assert request_example(operation) is not None
    elif "204" not in operation["responses"]:
        assert answer_examples(app, operation)


@pytest.mark.parametrize("route", ROUTES)
def test_examples_of_answers_are_what_their_schema_says(app: FastAPI, route: str) -> None:
    for schema, example in answer_examples(app, operation_of(app, route)):
        whole = schema | {"components": app.openapi()["components"]}
        if isinstance(example, dict):  # FastAPI leaves null out of the document
            example = dict.fromkeys(schema.get("required", ())) | example
        jsonschema.Draft202012Validator(whole).validate(example)


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_says_how_it_fails_and_who_may(app: FastAPI, route: str) -> None:
    operation = operation_of(app, route)
    for status in ("4XX", "5XX"):
        content = operation["responses"][status]["content"]
        assert content["application/problem+json"]["schema"]
    assert bool(operation.get("security")) == (NEEDS[route] != OPEN)
    assert operation["summary"]
    assert operation["description"]


async def new_playbook(api: AsyncClient) -> dict[str, str]:
    """A playbook with a bullet in it, and deltas that wait for a person."""
    book = Book(api, "support")
    await book.deltas({"type": "ADD", "section": "mis", "content": "there is one"})
    await api.patch(book.url, json={"review": "required"})
    held = await book.post("deltas", deltas=[{"type": "ADD", "content": "another"}])
    return {"name": book.name, "key": "mis-00001", "proposal_id": held.json()["proposal_id"]}


async def new_ids(api: AsyncClient) -> dict[str, str]:
    """What the paths of routes may name."""
    run = {"events": [{"event_type": "tool_call"}], "outcome": "error"}
    await new_key(api, "read")
    return {
        "trace_id": await new_trace(api, state="open", outcome=None),
        "memory_id": await new_memory(api, "something"),
        "run_id": (await api.post("/api/v1/traces", json=run)).json()["run_id"],
        "key_id": (await api.get("/api/v1/keys")).json()["items"][-1]["id"],
        **await new_playbook(api),
    }


@pytest.mark.parametrize("route", ROUTES)
async def test_every_example_works_as_printed(api: AsyncClient, app, tenant, http, route) -> None:
    method, path = route.split()
    ids = await new_ids(api)
    operation = operation_of(app, route)
    body = request_example(operation)
    headers = tenant.auth("operator" if NEEDS[route] == "operator" else "admin")
    answer = await http.request(
        method, path.format(**ids), json=body, headers=headers, params=QUERY.get(route)
    )
    if route == "POST /api/v1/runs/{run_id}/retry":
        assert answer.status_code == 409  # a run that waits cannot be retried
        return
    assert answer.is_success, answer.text
    documented = operation["responses"][str(answer.status_code)]
    if answer.content:
        schema = documented["content"]["application/json"]["schema"]
        whole = schema | {"components": app.openapi()["components"]}
        jsonschema.Draft202012Validator(whole).validate(answer.json())
