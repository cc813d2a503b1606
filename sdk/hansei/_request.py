"""Requests as values. The sync and the async client share all request descriptions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import PurePath
from typing import Any, Final, Generic, TypedDict, TypeVar, cast
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx2

from hansei._model import Model, to_json
from hansei._names import check_names

T = TypeVar("T")
M = TypeVar("M", bound=Model)
Id = str | UUID
API = "/api/v1"
MAX_PAGE_SIZE = 200
"""The largest page that the service sends."""


class Omit:
    """The default of an argument for which None means something: the field is not changed."""

    def __repr__(self) -> str:
        return "OMIT"


OMIT: Final = Omit()


class RequestOptions(TypedDict, total=False):
    """Options of a single call.

    timeout: seconds that the response may take.
    max_retries: retries of a request that fails in a way that may pass.
    idempotency_key: a repeated change with the same key happens once.
    extra_headers: headers that are added, or replace others.
    """

    timeout: float
    max_retries: int
    idempotency_key: str
    extra_headers: Mapping[str, str]


_OPTIONS = frozenset(RequestOptions.__annotations__)


def check_options(options: Mapping[str, object], method: Callable[..., object]) -> None:
    """Raises `TypeError` for an argument that `method` does not have. `options` are those that it
    does not name itself.
    """
    if options.keys() <= _OPTIONS:
        return
    named = inspect.signature(method).parameters.keys() - {"options"}
    name = method.__name__
    known = named | _OPTIONS
    otherwise = f" The arguments are {', '.join(sorted(known))}."
    check_names(f"`{name}` has no argument", options, known, otherwise)


@dataclass(frozen=True)
class PageData(Generic[T]):
    items: list[T]
    next_cursor: str | None


@dataclass(frozen=True)
class Request(Generic[T]):
    """One HTTP request and how its response becomes a T.

    `accepted_status` is an error status that is also a valid response. `parse` raises `ValueError`
    for a body that is not from Hansei. `limit` is the number of items that a list may have.
    """

    method: str
    path: str
    parse: Callable[[httpx2.Response], T]
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    accepted_status: int | None = None
    limit: int | None = None


def get_request(
    path: str, result: type[T], *, params: Mapping[str, Any] | None = None
) -> Request[T]:
    return Request("GET", path, parser(result), query_params(params or {}))


def list_request(
    path: str, item: type[M], limit: int | None = None, *, params: Mapping[str, Any] | None = None
) -> Request[PageData[M]]:
    """The first page of a list of at most `limit` items."""
    size = MAX_PAGE_SIZE if limit is None else max(1, min(limit, MAX_PAGE_SIZE))
    pairs = query_params({**(params or {}), "limit": size})
    return Request("GET", path, page_parser(item), pairs, limit=limit)


def next_page_request(
    first: Request[PageData[T]], page: PageData[T]
) -> Request[PageData[T]] | None:
    """The request for the page after `page`; None after the last page."""
    if page.next_cursor is None:
        return None
    return replace(first, params=(*first.params, ("cursor", page.next_cursor)))


def read_request(
    path: str,
    result: type[T],
    body: Mapping[str, Any],
    *,
    params: Mapping[str, Any] | None = None,
) -> Request[T]:
    """A POST that reads and changes nothing, so it needs no Idempotency-Key."""
    headers = {"Content-Type": "application/json"}
    pairs = query_params(params or {})
    return Request("POST", path, parser(result), pairs, encode_json(drop_none(body)), headers)


def write_request(
    method: str,
    path: str,
    result: type[T] | None,
    body: Mapping[str, Any] | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    if_match: int | None = None,
    is_enqueued: bool = False,
) -> Request[T]:
    """A change. Its Idempotency-Key makes it safe to retry after a lost response.

    With `if_match`, the service answers 412 if the playbook is not at this version. With
    `is_enqueued`, a worker does the work.
    """
    headers = {"Idempotency-Key": uuid4().hex}
    content = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        content = encode_json(drop_omitted(body) if method == "PATCH" else drop_none(body))
    if if_match is not None:
        headers["If-Match"] = f'"{if_match}"'
    if is_enqueued:
        headers["Prefer"] = "respond-async"
    return Request(method, path, parser(result), query_params(params or {}), content, headers)


def whole_list_request(
    method: str,
    path: str,
    item: type[M],
    *,
    body: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
) -> Request[PageData[M]]:
    """Reads a list that has one page, or replaces it."""
    if method == "GET":
        return Request("GET", path, page_parser(item), query_params(params or {}))
    request: Request[Any] = write_request(method, path, None, body, params=params)
    return replace(request, parse=page_parser(item))


def parser(result: type[T] | None) -> Callable[[httpx2.Response], T]:
    """How a response becomes a `result`: a model, text, or nothing."""

    def parse(response: httpx2.Response) -> Any:
        if result is None:
            return None
        if result is str:
            return response.text
        return cast("type[Model]", result).from_json(_json(response))

    return parse


def page_parser(item: type[M]) -> Callable[[httpx2.Response], PageData[M]]:
    def parse(response: httpx2.Response) -> PageData[M]:
        value = _json(response)
        return PageData([item.from_json(each) for each in value["items"]], value.get("next_cursor"))

    return parse


def parse_json(response: httpx2.Response) -> Any:
    return response.json()


def _json(response: httpx2.Response) -> dict[str, Any]:
    value: object = response.json()
    if not isinstance(value, dict):
        raise ValueError("The body is no JSON object.")
    return cast("dict[str, Any]", value)


def api_path(*parts: Id) -> str:
    """A path below `/api/v1`: `api_path("runs", run_id, "retry")`. Each part is escaped."""
    return "/".join([API, *(quote(str(part), safe="") for part in parts)])


def encode_json(value: object) -> bytes:
    """JSON, with models as objects and times, UUIDs and paths as strings. Raises `TypeError` for
    other types.
    """
    return json.dumps(value, default=_to_json_value, separators=(",", ":")).encode()


def drop_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def drop_omitted(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not OMIT}


def _to_json_value(value: object) -> Any:
    if isinstance(value, Model):
        return to_json(value)
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (UUID, PurePath)):
        return str(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if isinstance(value, Sequence):
        return list(cast("Sequence[Any]", value))
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")


def _format_param(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def query_params(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """A list repeats its name. None is omitted."""
    pairs: list[tuple[str, str]] = []
    for name, value in drop_none(values).items():
        items = cast("list[Any]", value) if isinstance(value, (list, tuple)) else [value]
        pairs += [(name, _format_param(item)) for item in items]
    return tuple(pairs)
