"""The OpenAPI document, its text for the repository, and /docs without a CDN."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from itertools import chain, count
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles

from memory_api.api.problems import (
    MEDIA_TYPE,
    PROBLEM_TYPES,
    Problem,
    document_problems,
    problem_example,
)
from memory_api.api.response_headers import PAGE_POLICY

DESCRIPTION = """\
Hansei learns from the runs of AI agents. Send traces; Hansei evaluates them, reflects on what
happened, and curates the lessons into playbooks that agents read before the next run.

- All paths need an API key, `Authorization: Bearer hsk_…`, except `/health`.
- A list answers `{"items": […], "next_cursor": …}`. Pass `next_cursor` as `cursor` for the next
  page; it is null on the last one.
- Errors are `application/problem+json` (RFC 9457) with a stable `code`. The `default`
  response of an operation lists those that any operation may return.
- A write with an `Idempotency-Key` is executed once. Its response is stored for 24 hours and sent
  again for the same key.
"""

TAGS = (
    {"name": "health", "description": "Whether the service works. No API key."},
    {"name": "tenants", "description": "Tenants: the owners of all data."},
    {"name": "keys", "description": "API keys and their scopes."},
    {"name": "runs", "description": "Work of the service: evaluate, reflect, curate, apply."},
    {"name": "budgets", "description": "Limits and usage of model calls, in US dollars."},
    {"name": "maintenance", "description": "Maintenance tasks, retention, erasure and export."},
    {"name": "traces", "description": "Records of agent runs: events, outcome, evidence."},
    {"name": "reflections", "description": "What happened in a run and why, with a strategy."},
    {"name": "memories", "description": "Any stored item, and search over all of them."},
    {"name": "playbooks", "description": "Playbooks: bullets for a prompt, with versions."},
    {"name": "bullets", "description": "Entries of a playbook, their verdicts and effects."},
    {"name": "analytics", "description": "Questions about the evolution of playbooks."},
    {"name": "evaluation-reports", "description": "Reports of `hansei eval`."},
    {"name": "collections", "description": "Documents, split into chunks that searches find."},
    {"name": "agents", "description": "An agent that plans, searches, answers and asks (GRACE)."},
    {"name": "webhooks", "description": "Addresses of yours that receive events."},
    {"name": "workflow", "description": "Answer a query with a playbook."},
)


READ_PROBLEMS = (
    *("unauthorized", "forbidden", "invalid", "rate_limited", "internal_error", "unavailable"),
)
"""What any operation with an API key may return."""
WRITE_PROBLEMS = (
    *("malformed_json", *READ_PROBLEMS, "in_progress", "too_large", "unsupported_media_type"),
    "idempotency_key_reused",
)
"""What any operation may return that is not a GET."""
MIN_BASE_FIELDS = 4
"""Schemas that share fewer fields have nothing to do with each other."""


def operation_id(route: APIRoute) -> str:
    """The name of the route's function."""
    return route.name


def install_openapi(app: FastAPI) -> None:
    """Serve the document at /openapi.json, with the schema of problems."""

    def build_document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = get_openapi(
                title=app.title,
                version=app.version,
                description=DESCRIPTION,
                routes=app.routes,
                tags=list(TAGS),
            )
            _add_problems(app.openapi_schema)
            _drop_read_only(app.openapi_schema)
            _drop_titles(app.openapi_schema["components"]["schemas"], keys_are_names=True)
            _drop_titles(app.openapi_schema["paths"], keys_are_names=True)
            _allow_new_response_fields(app.openapi_schema)
            _extract_base_schemas(app.openapi_schema["components"]["schemas"])
            _share_parameters(app.openapi_schema)
            _share_security(app.openapi_schema)
        return app.openapi_schema

    app.openapi = build_document


def _add_problems(document: dict[str, Any]) -> None:
    """Add the schema and the examples that `problems` refers to."""
    template = "#/components/schemas/{model}"
    schema = Problem.model_json_schema(mode="serialization", ref_template=template)
    components = document["components"]
    components["schemas"] |= schema.pop("$defs") | {"Problem": schema}
    components["examples"] = {code: problem_example(kind) for code, kind in PROBLEM_TYPES.items()}
    components["responses"] = _share_problem_responses(document["paths"])


def _drop_read_only(document: dict[str, Any]) -> None:
    """Remove `readOnly` of computed fields. They are in responses only, and generators of clients
    would make a second, writable type of each schema that contains one.
    """
    for schema in document["components"]["schemas"].values():
        for field in schema.get("properties", {}).values():
            field.pop("readOnly", None)


def _drop_titles(value: Any, *, keys_are_names: bool = False) -> None:
    """Removes titles, which only repeat names. A nullable type becomes a list of types."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            _drop_titles(item)
    if not isinstance(value, dict):
        return
    schema = cast("dict[str, Any]", value)
    if not keys_are_names:
        schema.pop("title", None)
        match schema.get("anyOf"):
            case [{"type": str(kind)} as one, {"type": "null"}] if not one.keys() & {
                "enum",
                "const",
            }:
                del schema["anyOf"]
                schema |= one | {"type": [kind, "null"]}
            case _:
                pass
    for key, item in schema.items():
        if keys_are_names or key not in ("example", "examples", "default"):
            _drop_titles(item, keys_are_names=key == "properties" and not keys_are_names)


def _allow_new_response_fields(document: dict[str, Any]) -> None:
    """Removes `additionalProperties: false` from schemas of responses only: they get new fields."""
    schemas = document["components"]["schemas"]
    bodies = [each.get("requestBody") for each in _operations(document)]
    names = re.findall(r"#/components/schemas/(\w+)", json.dumps(bodies))
    taken: set[str] = set()
    while names:
        name = names.pop()
        if name not in taken:
            taken.add(name)
            names += re.findall(r"#/components/schemas/(\w+)", json.dumps(schemas[name]))
    for name in schemas.keys() - taken:
        schemas[name].pop("additionalProperties", None)


def _extract_base_schemas(schemas: dict[str, Any]) -> None:
    """Writes a schema with all fields of another one, such as a trace with its events, as that one
    and the further fields.
    """
    fields = {
        name: {(field, json.dumps(each)) for field, each in schema.get("properties", {}).items()}
        for name, schema in schemas.items()
        if "additionalProperties" not in schema
    }
    required = {name: set(schema.get("required", ())) for name, schema in schemas.items()}
    for name, own in fields.items():
        bases = [
            base
            for base, shared in fields.items()
            if len(shared) >= MIN_BASE_FIELDS and shared < own and required[base] <= required[name]
        ]
        if bases:
            base = max(bases, key=lambda base: (len(fields[base]), base))
            inherited = {field for field, _ in fields[base]}
            schema = schemas[name]
            schemas[name] = {"allOf": [{"$ref": f"#/components/schemas/{base}"}]} | schema
            schemas[name] |= {
                "properties": {k: v for k, v in schema["properties"].items() if k not in inherited},
                "required": [k for k in schema.get("required", ()) if k not in required[base]],
            }
            if schema.get("examples") == schemas[base].get("examples"):
                del schemas[name]["examples"]


def _share_parameters(document: dict[str, Any]) -> None:
    """Replace parameters that several operations have by references to one definition."""
    for _, parameter in _parameters(document):  # FastAPI writes the description twice
        parameter["schema"].pop("description", None)
    counts = Counter(json.dumps(parameter) for _, parameter in _parameters(document))
    shared: dict[str, Any] = {}
    for holder, parameter in list(_parameters(document)):
        text = json.dumps(parameter)
        if counts[text] == 1:
            continue
        name = parameter["name"].replace("-", "_").lower()
        names = chain([name], (f"{name}_{n}" for n in count(2)))
        name = next(name for name in names if shared.setdefault(name, parameter) == parameter)
        holder[holder.index(parameter)] = {"$ref": f"#/components/parameters/{name}"}
    document["components"]["parameters"] = shared


def _parameters(document: dict[str, Any]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Each parameter, with the list that contains it."""
    for operation in _operations(document):
        parameters = operation.get("parameters", [])
        yield from ((parameters, parameter) for parameter in parameters)


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


def _share_problem_responses(paths: dict[str, Any]) -> dict[str, Any]:
    """Replaces problem responses by references; returns the responses, named after their codes.
    Those of any operation are its `default`.
    """
    shared = {
        "error_of_a_read": document_problems(*READ_PROBLEMS),
        "error_of_a_write": document_problems(*WRITE_PROBLEMS),
    }
    for method, operation in ((m, o) for item in paths.values() for m, o in item.items()):
        is_public = "security" not in operation
        general = set(READ_PROBLEMS if method == "get" else WRITE_PROBLEMS)
        responses: dict[str, Any] = {}
        for status, response in sorted(operation["responses"].items()):
            problem = response.get("content", {}).get(MEDIA_TYPE)
            if problem is None or len(response["content"]) > 1:
                if response["description"] == "Successful Response":
                    response["description"] = HTTPStatus(int(status)).phrase
                responses[status] = response
            elif is_public or not problem["examples"].keys() <= general:
                name = "_or_".join(problem["examples"])
                shared[name] = response
                responses[status] = {"$ref": f"#/components/responses/{name}"}
        if not is_public:
            name = "error_of_a_read" if method == "get" else "error_of_a_write"
            responses["default"] = {"$ref": f"#/components/responses/{name}"}
        operation["responses"] = responses
    return shared


def _share_security(document: dict[str, Any]) -> None:
    """States the API key once. An operation without it says so."""
    for operation in _operations(document):
        if "security" in operation:
            document["security"] = operation.pop("security")
        else:
            operation["security"] = []


def document_text(document: dict[str, Any]) -> str:
    """The document as JSON text, with sorted paths and components, so that it is stable."""
    components = {name: _sorted(part) for name, part in document["components"].items()}
    ordered = document | {"paths": _sorted(document["paths"]), "components": components}
    return json.dumps(ordered, indent=2, ensure_ascii=False) + "\n"


def _sorted(mapping: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(mapping.items()))


def install_docs(app: FastAPI) -> None:
    """Serve Swagger UI at /docs from the installed package."""
    app.mount(
        "/docs/assets", StaticFiles(packages=[("fastapi_swagger", "resources")]), name="docs-assets"
    )

    @app.get("/docs", include_in_schema=False)
    async def show_docs() -> HTMLResponse:  # pyright: ignore[reportUnusedFunction]
        page = get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="Hansei",
            swagger_js_url="/docs/assets/swagger-ui-bundle.js",
            swagger_css_url="/docs/assets/swagger-ui.css",
            swagger_favicon_url="/docs/assets/favicon-32x32.png",
        )
        page.headers["Content-Security-Policy"] = PAGE_POLICY
        return page
