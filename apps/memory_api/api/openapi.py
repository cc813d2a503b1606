"""The OpenAPI document, its text for the repository, and /docs without a CDN."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import chain, count
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles

from memory_api.api.problem_types import PROBLEM_TYPES
from memory_api.api.problems import MEDIA_TYPE, Problem, problem_example
from memory_api.api.response_headers import PAGE_POLICY

DESCRIPTION = """\
Hansei learns from the runs of AI agents. Send traces; Hansei evaluates them, reflects on what
happened, and curates the lessons into playbooks that agents read before the next run.

- All paths need an API key, `Authorization: Bearer hsk_…`, except `/health`.
- A list answers `{"items": […], "next_cursor": …}`. Pass `next_cursor` as `cursor` for the next
  page; it is null on the last one.
- Errors are `application/problem+json` (RFC 9457) with a stable `code`.
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
    {"name": "collections", "description": "Documents, split into chunks that searches find."},
    {"name": "agents", "description": "An agent that plans, searches, answers and asks (GRACE)."},
    {"name": "webhooks", "description": "Addresses of yours that receive events."},
    {"name": "workflow", "description": "Answer a query with a playbook."},
)


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
            _drop_titles(app.openapi_schema)
            _share_parameters(app.openapi_schema)
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


def _drop_titles(document: dict[str, Any]) -> None:
    """Remove the titles of parameters and fields, which only repeat their names."""
    schemas = [field for _, field in _parameters(document)]
    for schema in document["components"]["schemas"].values():
        schemas += schema.get("properties", {}).values()
    for schema in schemas:
        schema.pop("title", None)
        schema.get("schema", {}).pop("title", None)


def _share_parameters(document: dict[str, Any]) -> None:
    """Replace parameters that several operations have by references to one definition."""
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
    for path in document["paths"].values():
        for operation in path.values():
            parameters = operation.get("parameters", [])
            yield from ((parameters, parameter) for parameter in parameters)


def _share_problem_responses(paths: dict[str, Any]) -> dict[str, Any]:
    """Replaces problem responses by references; returns the responses, named after their codes."""
    shared: dict[str, Any] = {}
    for operation in (operation for item in paths.values() for operation in item.values()):
        for status, response in operation["responses"].items():
            problem = response.get("content", {}).get(MEDIA_TYPE)
            if problem is not None and len(response["content"]) == 1:
                name = "_or_".join(problem["examples"])
                shared[name] = response
                operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
        operation["responses"] = _sorted(operation["responses"])
    return shared


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
