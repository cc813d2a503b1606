"""Error responses: `application/problem+json` (RFC 9457) with a stable `code`. The titles and texts
of all codes are in `problems.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from pathlib import Path
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from memory_api.api.request_log import caller_ids, route_template
from memory_api.api.response_headers import complete_headers
from memory_api.core.db_errors import is_transient
from memory_api.core.errors import MAX_FIELD_LENGTH, HanseiError, NotFound, field_problem
from memory_api.core.schemas import accepted_names, documented_names, model_at

log = structlog.get_logger()

OTHER_VERSION = re.compile(r"/api/v(?!1/)(\d{1,3})/")
MEDIA_TYPE = "application/problem+json"
LOGGED_ERROR = "hansei.logged_error"
"""In the scope of a request: its error, which has been logged."""
MAX_ERRORS = 20

Responses = dict[int | str, dict[str, Any]]

CODE_OF_STATUS = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    412: "precondition_failed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    429: "busy",
    500: "internal_error",
    502: "llm_error",
    503: "unavailable",
    504: "llm_timeout",
}
"""The general code of a status."""


@dataclass(frozen=True)
class ProblemType:
    """One kind of error: what happened, and what the client can do."""

    code: str
    status: int
    title: str
    meaning: str
    remedy: str

    @property
    def uri(self) -> str:
        """The `type` of the problem (RFC 9457), relative to the service."""
        return f"/problems/{self.code}"


with Path(__file__).with_suffix(".toml").open("rb") as _file:
    PROBLEM_TYPES = {
        code: ProblemType(code, **fields) for code, fields in tomllib.load(_file).items()
    }


class FieldError(BaseModel):
    """What is wrong with one field."""

    field: str = Field(description="Path of the field, with dots: `events.0.event_type`.")
    message: str
    type: str | None = Field(default=None, description="The kind of validation error, if known.")


class Problem(BaseModel):
    """An error (RFC 9457). Some codes add members, such as `merged_into` or `version`."""

    model_config = ConfigDict(extra="allow", title="Problem")

    type: str = Field(description="`/problems/<code>`: a page that explains the error.")
    title: str
    status: int
    code: str = Field(description="Stable name of the error. Texts may change, codes do not.")
    detail: str = Field(description="What is wrong with this request.")
    instance: str | None = Field(
        default=None,
        description="`urn:uuid:` and the request ID, which the log of the server names too.",
    )
    errors: list[FieldError] | None = Field(
        default=None, description="The invalid fields, at most twenty.", max_length=MAX_ERRORS
    )


def problems(*kinds: int | str) -> Responses:
    """Documents error responses of a route: `responses=problems(404, "playbook_full")`.

    A status stands for its general code; a string is a code.
    """
    responses: Responses = {}
    for kind in kinds:
        known = PROBLEM_TYPES[CODE_OF_STATUS[kind] if isinstance(kind, int) else kind]
        document = document_problems(known.code)
        responses = merge_responses(responses, {known.status: document})
    return responses


def merge_responses(first: Responses, second: Responses) -> Responses:
    """Both documentations; problems of the same status become examples of one response."""
    merged = dict(first)
    for status, response in second.items():
        known = merged.get(status)
        if known is None or MEDIA_TYPE not in response.get("content", {}):
            merged[status] = response
            continue
        examples = known["content"][MEDIA_TYPE]["examples"]
        examples = examples | response["content"][MEDIA_TYPE]["examples"]
        merged[status] = document_problems(*examples)
    return merged


def document_problems(*codes: str) -> dict[str, Any]:
    """An error response for the OpenAPI document. The examples say what each code means."""
    return {
        "description": ". ".join(PROBLEM_TYPES[code].title for code in codes) + ".",
        "content": {
            MEDIA_TYPE: {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "examples": {code: {"$ref": f"#/components/examples/{code}"} for code in codes},
            }
        },
    }


def problem_example(kind: ProblemType) -> dict[str, Any]:
    """An example of a problem for the OpenAPI document."""
    example: dict[str, Any] = {
        "type": kind.uri,
        "title": kind.title,
        "status": kind.status,
        "code": kind.code,
        "detail": kind.meaning.replace("`", ""),
    }
    if kind.code == "invalid":
        message = "Must be 'success', 'failure', 'partial', 'timeout' or 'error'."
        example["detail"] = f"outcome: {message}"
        example["errors"] = [{"field": "outcome", "message": message, "type": "enum"}]
    return {"value": example}


def problem_response(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Sequence[dict[str, Any]] = (),
    headers: dict[str, str] | None = None,
    instance: str | None = None,
    **extra: Any,
) -> JSONResponse:
    """An error response. At most twenty of `errors` are sent."""
    kind = PROBLEM_TYPES.get(code)
    title = kind.title if kind and kind.status == status else HTTPStatus(status).phrase
    uri = kind.uri if kind else "about:blank"
    body: dict[str, Any] = {"type": uri, "title": title, "status": status}
    body |= {"code": code, "detail": detail}
    if instance:
        body["instance"] = instance
    body |= extra
    if errors:
        body["errors"] = list(errors[:MAX_ERRORS])
    return JSONResponse(body, status_code=status, headers=headers, media_type=MEDIA_TYPE)


def to_problem(
    error: Exception,
    body_model: type[BaseModel] | None = None,
    instance: str | None = None,
    allowed_methods: Collection[str] = (),
) -> JSONResponse:
    """Any error as a problem. The response to an unforeseen error does not contain its text.

    `body_model` is the model of the route's body, `allowed_methods` the methods of the path, if the
    method was wrong.
    """
    if isinstance(error, HanseiError):
        errors = [{"field": error.field, "message": error.detail}] if error.field else []
        return problem_response(
            error.status,
            error.code,
            error.detail,
            errors=errors,
            headers=error.headers,
            instance=instance,
            **error.extra,
        )
    if isinstance(error, RequestValidationError):
        # The first part of a location is where the value was sent: body, query, path or header.
        errors = [
            describe_field_error(item | {"loc": item["loc"][1:]}, body_model)
            for item in error.errors()[:MAX_ERRORS]
        ]
        detail = f"{errors[0]['field']}: {errors[0]['message']}"
        return problem_response(422, "invalid", detail, errors=errors, instance=instance)
    if isinstance(error, HTTPException):
        status = error.status_code
        code = CODE_OF_STATUS.get(status, "bad_request")
        detail = PROBLEM_TYPES[code].meaning if status in CODE_OF_STATUS else str(error.detail)
        if status == 404:  # routes raise `NotFound`; only the router raises this
            detail = "There is no route with this path. /docs lists all routes."
        headers = dict(error.headers or {})
        if allowed_methods:
            headers["Allow"] = ", ".join(sorted(allowed_methods))
        return problem_response(status, code, detail, headers=headers, instance=instance)
    if isinstance(error, ClientDisconnect):
        code = "client_disconnected"
        return problem_response(400, code, PROBLEM_TYPES[code].meaning, instance=instance)
    if is_transient(error):
        detail = "The database cannot be reached. Retry in 2 seconds."
        headers = {"Retry-After": "2"}
        return problem_response(503, "unavailable", detail, headers=headers, instance=instance)
    detail = "The server failed unexpectedly. Its log has the details."
    return problem_response(500, "internal_error", detail, instance=instance)


def _methods_of_path(request: Request) -> set[str]:
    """The methods of all routes with the path of the request."""
    methods: set[str] = set()
    for route in iter_route_contexts(request.app.routes):
        path = route.path or getattr(route.original_route, "path", "")
        if compile_path(path)[0].match(request.url.path):
            methods |= getattr(route.original_route, "methods", None) or set()
    return methods


def describe_field_error(
    item: dict[str, Any], model: type[BaseModel] | None = None
) -> dict[str, Any]:
    """One error of pydantic: the field as a dotted path and the message, never the value. `model`
    is that of the body.
    """
    field, message = field_problem(item)
    if item["type"] == "extra_forbidden" and model is not None:
        message = _unknown_field_message(item["loc"], model)
    return {"field": field or "body", "message": message, "type": item["type"]}


def _unknown_field_message(path: Sequence[str | int], model: type[BaseModel]) -> str:
    owner = model_at(model, path[:-1])
    name = str(path[-1])[:MAX_FIELD_LENGTH]
    names = accepted_names(owner) if owner else frozenset[str]()
    if name in names:
        return "The body has this field twice, under two names. Send one of them."
    if near := get_close_matches(name, sorted(names), 1):
        return f"Unknown field. Did you mean `{near[0]}`?"
    for own_data in ("metadata", "context"):
        if own_data in names:
            return f"Unknown field. Put your own data into `{own_data}`."
    if owner is model:
        return f"Unknown field. The body may contain: {documented_names(model)}."
    return "Unknown field."


class LoggedErrors:
    """Ends the errors of requests that have been answered and logged. Starlette raises them again
    for the server, which would log their traceback a second time.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        except Exception as error:
            if scope.get(LOGGED_ERROR) is not error:
                raise


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of the application as a problem."""

    async def handle_error(request: Request, error: Exception) -> JSONResponse:
        other = OTHER_VERSION.match(request.url.path)
        if other and isinstance(error, HTTPException) and error.status_code == 404:
            error = NotFound(
                "This service has version 1 of the API, and the client asks for version"
                f" {other[1]}. Use a client and a service of the same major version."
            )
        request_id: str = request.scope.get("hansei.request_id", "")
        is_method_error = isinstance(error, HTTPException) and error.status_code == 405
        response = to_problem(
            error,
            getattr(request.state, "body_model", None),
            f"urn:uuid:{request_id}" if request_id else None,
            _methods_of_path(request) if is_method_error else (),
        )
        if response.status_code >= 500:
            log.error(
                "request_failed",
                route=route_template(request.scope),
                request_id=request_id,
                **caller_ids(request.scope),
                exc_info=error,
            )
            request.scope[LOGGED_ERROR] = error
            if response.status_code == 500:
                response.headers["Connection"] = "close"  # the server closes it after such an error
            # Responses to unforeseen errors do not pass through RequestLogMiddleware.
            headers = complete_headers(request.scope, response.headers.raw, request_id)
            response.raw_headers = headers
        return response

    handled = (HanseiError, RequestValidationError, HTTPException, ClientDisconnect, Exception)
    for kind in handled:
        app.add_exception_handler(kind, handle_error)
