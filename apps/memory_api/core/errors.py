"""Base errors. Each has an HTTP status and a stable code. `api/problems.py` renders them (RFC
9457).

HanseiError
├── InvalidRequest 422       the request is well-formed but not valid; names the field
├── Unauthorized 401         no API key, or an invalid one
├── Forbidden 403            the API key is valid but lacks permission
├── NotFound 404             also for another tenant's resources; the answers are identical
├── Conflict 409             the same external_id or key exists with other content
├── PayloadTooLarge 413      over a documented limit
├── TooManyRequests 429      the client should retry later (Retry-After)
└── ServiceUnavailable 503   the database or a provider cannot be reached

A class's docstring is its default message. `ConfigurationError` stops the process before it serves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, cast

MAX_FIELD_LENGTH = 200
"""Characters of a field's path in an error. Parts of the path may be keys of the sent body."""


class HanseiError(Exception):
    """Internal error."""

    status = 500
    code = "internal_error"

    def __init__(
        self, detail: str | None = None, *, field: str | None = None, **extra: Any
    ) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.field = field
        self.extra = extra
        self.headers: dict[str, str] = {}
        super().__init__(self.detail)


class InvalidRequest(HanseiError):
    """The request is not valid."""

    status, code = 422, "invalid"


class Unauthorized(HanseiError):
    """Missing or invalid API key. Send `Authorization: Bearer hsk_…`."""

    status, code = 401, "unauthorized"

    def __init__(self, detail: str | None = None, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.headers = {"WWW-Authenticate": 'Bearer realm="hansei"'}


class Forbidden(HanseiError):
    """This API key does not have the required permission."""

    status, code = 403, "forbidden"


class NotFound(HanseiError):
    """Resource not found."""

    status, code = 404, "not_found"


class Conflict(HanseiError):
    """The resource already exists with different content."""

    status, code = 409, "conflict"


class PayloadTooLarge(HanseiError):
    """The request is larger than the limit."""

    status, code = 413, "too_large"


class TooManyRequests(HanseiError):
    """Too many requests. Retry later."""

    status, code = 429, "busy"

    def __init__(self, detail: str | None = None, *, retry_after: int = 1, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.headers = {"Retry-After": str(retry_after)}


class RequestInProgress(Conflict):
    """A request with this Idempotency-Key is still in progress. Retry later."""

    code = "in_progress"

    def __init__(self, detail: str | None = None, *, retry_after: int = 1, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.headers = {"Retry-After": str(retry_after)}


class ServiceUnavailable(HanseiError):
    """A required dependency is unavailable. Retry later."""

    status, code = 503, "unavailable"

    def __init__(self, detail: str | None = None, *, retry_after: int = 2, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.headers = {"Retry-After": str(retry_after)}


class ConfigurationError(ValueError):
    """A setting is wrong. Its one-line message names the setting, and the process does not
    start.
    """


class FieldProblem(NamedTuple):
    """What is wrong with a field. `field` is a dotted path, "" for the whole value."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def field_problem(error: Mapping[str, Any]) -> FieldProblem:
    """One error of pydantic as a sentence for a person, who does not see our classes. It never
    contains the value.
    """
    field = ".".join(str(part) for part in error["loc"])[:MAX_FIELD_LENGTH]
    return FieldProblem(field, _field_message(error))


_SENTENCES: Mapping[str, str] = {
    "missing": "This field is required.",
    "extra_forbidden": "Unknown field.",
    "list_type": "Must be a JSON array.",
    **dict.fromkeys(("model_attributes_type", "model_type", "dict_type"), "Must be a JSON object."),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "Must be a whole number."),
    **dict.fromkeys(
        ("float_parsing", "float_type", "decimal_parsing", "decimal_type"), "Must be a number."
    ),
    **dict.fromkeys(("uuid_parsing", "uuid_type"), "Must be a UUID."),
    **dict.fromkeys(
        ("datetime_parsing", "datetime_from_date_parsing"),
        "Must be an ISO 8601 time, such as 2026-07-31 or 2026-07-31T08:00:00Z.",
    ),
}
"""Type of an error of pydantic → what is wrong."""


def _field_message(error: Mapping[str, Any]) -> str:
    kind, limits = error["type"], cast(Mapping[str, Any], error.get("ctx") or {})
    if sentence := _SENTENCES.get(kind):
        return sentence
    if kind == "string_too_short" and limits["min_length"] == 1:
        return "Must not be empty."
    if kind == "too_short":
        return f"Must have at least {limits['min_length']} item(s)."
    if kind == "too_long":
        return f"Must have at most {limits['max_length']} item(s)."
    message = str(error["msg"]).removeprefix("Value error, ")
    message = message.replace("Input should be", "Must be", 1)
    message = message if message.endswith(".") else f"{message}."
    if kind in ("enum", "literal_error"):
        allowed = re.findall(r"'([^']*)'", limits["expected"])
        if near := get_close_matches(str(error["input"])[:MAX_FIELD_LENGTH], allowed, 1):
            message += f" Did you mean '{near[0]}'?"
    return message
