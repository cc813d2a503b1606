"""Requests as values. The sync and the async client share all request descriptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import PurePath
from typing import Any, Generic, Literal, TypeVar, cast
from urllib.parse import quote
from uuid import UUID, uuid4

from hansei.types import Page

T = TypeVar("T")
Id = str | UUID
ResponseFormat = Literal["json", "json_with_version", "text"]
API = "/api/v1"
MAX_PAGE_SIZE = 200
"""The largest `limit` that the service accepts."""


@dataclass(frozen=True)
class Request(Generic[T]):
    """One HTTP request whose response is a T.

    `accepted_status` is an error status that is also a valid response. `response_format` is how
    the body is read: JSON, a JSON object plus the `version` of its ETag header, or text.
    """

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    accepted_status: int | None = None
    response_format: ResponseFormat = "json"


def get_request(path: str, **params: Any) -> Request[T]:
    return Request("GET", path, query_params(params))


def query_request(path: str, body: Mapping[str, Any]) -> Request[T]:
    """A POST that reads and changes nothing, so it needs no Idempotency-Key."""
    headers = {"Content-Type": "application/json"}
    return Request("POST", path, body=encode_json(body), headers=headers)


def write_request(
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Request[T]:
    """A change. Its Idempotency-Key makes it safe to retry after a lost response."""
    content_type = {"Content-Type": "application/json"} if body is not None else {}
    return Request(
        method,
        path,
        query_params(params or {}),
        encode_json(body) if body is not None else None,
        {"Idempotency-Key": uuid4().hex} | content_type | dict(headers or {}),
    )


def next_page_request(first: Request[Page[T]], page: Page[T]) -> Request[Page[T]] | None:
    """The request for the page after `page`; None after the last page."""
    cursor = page["next_cursor"]
    if cursor is None:
        return None
    return Request(first.method, first.path, (*first.params, ("cursor", cursor)))


def if_match_header(version: int | None) -> dict[str, str]:
    """The service answers 412 if the playbook is not at this version."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def prefer_header(wait: bool) -> dict[str, str]:
    return {} if wait else {"Prefer": "respond-async"}


def api_path(*parts: Id) -> str:
    """A path below `/api/v1`: `api_path("runs", run_id, "retry")`. Each part is escaped."""
    return "/".join([API, *(quote(str(part), safe="") for part in parts)])


def encode_json(value: object) -> bytes:
    """JSON, with times, UUIDs and paths as strings. Raises `TypeError` for other types."""
    return json.dumps(value, default=_to_json_string, separators=(",", ":")).encode()


def drop_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _to_json_string(value: object) -> str:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (UUID, PurePath)):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")


def _format_param(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def query_params(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """A list repeats its name. None is omitted."""
    pairs: list[tuple[str, str]] = []
    for name, value in drop_none(values).items():
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        pairs += [(name, _format_param(item)) for item in items]
    return tuple(pairs)
