"""The OpenAPI document: an example for every body, the one error shape, and /docs without a CDN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

PROBLEM = {
    "description": "What went wrong (RFC 9457); `code` is stable, `errors` names the fields.",
    "content": {
        "application/problem+json": {
            "example": {
                "type": "about:blank",
                "title": "Invalid",
                "status": 422,
                "code": "invalid",
                "detail": "outcome: Input should be 'success', 'failure', …",
                "errors": [{"field": "outcome", "message": "Input should be 'success', …"}],
            }
        }
    },
}
RESPONSES: dict[int | str, dict[str, Any]] = {"4XX": PROBLEM}


def example(value: object, *, also: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`openapi_extra` with an example of the JSON body; `also` names other media types it may come
    as.
    """
    content: dict[str, Any] = {"application/json": {"example": value}}
    for kind, description in (also or {}).items():
        content[kind] = {"schema": {"type": "string", "description": description}}
    return {"requestBody": {"content": content}}


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
