"""One error shape for the whole service: `application/problem+json` (RFC 9457) with a stable
`code`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from apps.memory_api.core.away import may_pass
from apps.memory_api.core.errors import HanseiError

log = structlog.get_logger()

MAX_ERRORS = 20
MAX_FIELD = 200
"""Characters of a field's path that are shown: parts of it may be a stranger's keys."""
TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid",
    429: "Too many requests",
    500: "Internal error",
    502: "Bad gateway",
    503: "Unavailable",
}
CODES = {
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
}


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Sequence[dict[str, Any]] = (),
    headers: dict[str, str] | None = None,
    **extra: Any,
) -> JSONResponse:
    """An error as every route answers it. `errors` names the fields, at most twenty."""
    title = TITLES.get(status, "Error")
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status}
    body |= {"code": code, "detail": detail, **extra}
    if errors:
        body["errors"] = list(errors[:MAX_ERRORS])
    return JSONResponse(
        body, status_code=status, headers=headers, media_type="application/problem+json"
    )


def as_problem(error: Exception, fields: Sequence[str] = ()) -> JSONResponse:
    """Any error in the one shape; what we did not foresee tells nothing of itself. `fields` are
    those that the body may have.
    """
    if isinstance(error, HanseiError):
        errors = [{"field": error.field, "message": error.detail}] if error.field else []
        return problem(
            error.status,
            error.code,
            error.detail,
            errors=errors,
            headers=error.headers,
            **error.extra,
        )
    if isinstance(error, RequestValidationError):
        # the first step of a place says where it was sent: body, query, path or header
        errors = [describe(item | {"loc": item["loc"][1:]}, fields) for item in error.errors()]
        first = errors[0]
        return problem(422, "invalid", f"{first['field']}: {first['message']}", errors=errors)
    if isinstance(error, HTTPException):
        code = CODES.get(error.status_code, "bad_request")
        headers = dict(error.headers or {})
        return problem(error.status_code, code, str(error.detail), headers=headers)
    if isinstance(error, ClientDisconnect):  # nobody reads this, and it is no failure of ours
        return problem(400, "client_left", "The connection broke before the body had come.")
    if may_pass(error):
        return problem(
            503, "unavailable", "The database is away; try again.", headers={"Retry-After": "2"}
        )
    return problem(500, "internal_error", "Something went wrong on our side; it is in the log.")


def describe(item: dict[str, Any], fields: Sequence[str] = ()) -> dict[str, Any]:
    """One finding of pydantic: the field as a dotted path, the message, never the value."""
    field = ".".join(str(part) for part in item["loc"])[:MAX_FIELD] or "body"
    message = item["msg"]
    if fields and item["type"] == "extra_forbidden" and len(item["loc"]) == 1:
        message = f"There is no such field here; there are: {', '.join(fields)}."
    return {"field": field, "message": message, "type": item["type"]}


def _fields_of(request: Request) -> list[str]:
    """What the body of this route may hold, by the names under which it is sent."""
    body = getattr(request.scope.get("route"), "body_field", None)
    model = body.field_info.annotation if body is not None else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return []
    return sorted(model.model_json_schema().get("properties", {}))


def install(app: FastAPI) -> None:
    async def answer(request: Request, error: Exception) -> JSONResponse:
        wrong = isinstance(error, RequestValidationError)
        response = as_problem(error, _fields_of(request) if wrong else ())
        if response.status_code >= 500:
            request_id = request.scope.get("hansei.request_id", "")
            path = request.url.path
            log.error("request_failed", path=path, request_id=request_id, exc_info=error)
            # Errors nobody foresaw are answered outside of our middleware.
            response.headers.setdefault("X-Request-ID", request_id)
        return response

    known = (HanseiError, RequestValidationError, HTTPException, ClientDisconnect)
    for kind in (*known, Exception):
        app.add_exception_handler(kind, answer)
