"""A request as a value, so that the sync and the async client share every description of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import PurePath
from typing import Any, Generic, Literal, TypeVar, cast
from urllib.parse import quote
from uuid import UUID, uuid4

from hansei.answers import Page

T = TypeVar("T")
Id = str | UUID
Form = Literal["json", "versioned", "text"]
API = "/api/v1"


@dataclass(frozen=True)
class Request(Generic[T]):
    """One call of the service, answered with a T. `fine` is a failing status that is also an
    answer. `form` says how the answer is read: JSON; JSON with the `version` that its ETag tells;
    or text as it is.
    """

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    fine: int | None = None
    form: Form = "json"


def read(path: str, **params: Any) -> Request[T]:
    return Request("GET", path, _params(params))


def ask(path: str, body: Mapping[str, Any]) -> Request[T]:
    """A question that needs a body."""
    return Request("POST", path, body=encode(body), headers={"Content-Type": "application/json"})


def write(
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Request[T]:
    """A change. Its Idempotency-Key makes it safe to send again when the answer got lost."""
    kind = {"Content-Type": "application/json"} if body is not None else {}
    return Request(
        method,
        path,
        _params(params or {}),
        encode(body) if body is not None else None,
        {"Idempotency-Key": uuid4().hex} | kind | dict(headers or {}),
    )


def at_version(version: int | None) -> dict[str, str]:
    """The header that lets a change through only at this version of a playbook; else 412."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def one(*parts: Id) -> str:
    """The path of one thing of the API, or of a part of it: `one("runs", run_id, "retry")`."""
    return "/".join([API, *(quote(str(part), safe="") for part in parts)])


def encode(value: object) -> bytes:
    """JSON. Times, UUIDs and paths are written as text; raises `TypeError` for anything else that
    JSON has no form for.
    """
    return json.dumps(value, default=_as_text, separators=(",", ":")).encode()


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def _as_text(value: object) -> str:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _params(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Query parameters; a list repeats its name."""
    pairs: list[tuple[str, str]] = []
    for name, value in given(values).items():
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        pairs += [(name, str(item)) for item in items]
    return tuple(pairs)


def following(first: Request[Page[T]], page: Page[T]) -> Request[Page[T]] | None:
    """The request for the page after `page` of the list that `first` began; None after the last."""
    cursor = page["next_cursor"]
    if cursor is None:
        return None
    return Request(first.method, first.path, (*first.params, ("cursor", cursor)))
