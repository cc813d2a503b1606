"""The OpenAPI document: an example for every body, the one error shape, and /docs without a CDN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from pydantic import ConfigDict

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "Stable; the rest may be reworded."},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "description": "What is wrong with which field, at most twenty.",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
"""What every error looks like (`core.http`)."""

INVALID = {
    "type": "about:blank",
    "title": "Invalid",
    "status": 422,
    "code": "invalid",
    "detail": "outcome: Input should be 'success', 'failure', …",
    "errors": [{"field": "outcome", "message": "Input should be 'success', 'failure', …"}],
}
AWAY = {
    "type": "about:blank",
    "title": "Unavailable",
    "status": 503,
    "code": "unavailable",
    "detail": "The database is away; try again.",
}


def _problem(description: str, example: object) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": PROBLEM, "example": example}}
    return {"description": description, "content": content}


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": _problem("The request is refused, and why (RFC 9457).", INVALID),
    "5XX": _problem("Not the caller's fault; `Retry-After` says when it may help.", AWAY),
}


def example(value: object, *, also: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`openapi_extra` with an example of the JSON body; `also` names other media types it may come
    as.
    """
    content: dict[str, Any] = {"application/json": {"example": value}}
    for kind, description in (also or {}).items():
        content[kind] = {"schema": {"type": "string", "description": description}}
    return {"requestBody": {"content": content}}


def shown(*examples: Mapping[str, Any]) -> ConfigDict:
    """The configuration of a wire model, with examples of it."""
    return ConfigDict(json_schema_extra={"examples": [dict(example) for example in examples]})


def install_docs(app: FastAPI) -> None:
    """Serve Swagger UI at /docs from the installed package."""
    app.mount(
        "/docs/assets", StaticFiles(packages=[("fastapi_swagger", "resources")]), name="docs-assets"
    )

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:  # pyright: ignore[reportUnusedFunction]
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="Hansei",
            swagger_js_url="/docs/assets/swagger-ui-bundle.js",
            swagger_css_url="/docs/assets/swagger-ui.css",
            swagger_favicon_url="/docs/assets/favicon-32x32.png",
        )
