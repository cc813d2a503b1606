"""Reading JSON that strangers send.

What is malformed, too large, too deep or not a finite number is refused and the place named. NUL
and lone surrogates, which PostgreSQL cannot store, become U+FFFD and are reported as `cleaned`.
All else is left as it came.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncGenerator, Iterable
from typing import Any, NamedTuple, cast

from fastapi import Request
from pydantic_core import from_json
from starlette.types import Message

from apps.memory_api.core.errors import HanseiError, Invalid, TooLarge

MAX_DEPTH = 64
MAX_BODY = 32 * 1024 * 1024
MAX_DISCARD = 8 * MAX_BODY
MAX_PATH = 160
"""Characters of a path that an error shows."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPED = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
"""How JSON may write one of them; the halves of a pair look the same."""
_LOOKED_AT = frozenset({dict, list, float})


class MalformedBody(HanseiError):
    """The body is not valid JSON."""

    status, code = 400, "malformed_json"


class NotJson(HanseiError):
    """Send the body as JSON, with `Content-Type: application/json`."""

    status, code = 415, "unsupported_media_type"


class Parsed(NamedTuple):
    """A JSON value, and whether anything in it had to be cleaned."""

    value: Any
    cleaned: bool


class ReadRequest(Request):
    """A request whose body was read here; `parsed` is its JSON, None when it is something else."""

    def __init__(self, request: Request, raw: bytes, parsed: Parsed | None = None) -> None:
        super().__init__(request.scope, request.receive)
        self.raw = raw
        self.parsed = parsed
        self.state.cleaned = parsed.cleaned if parsed else False

    async def body(self) -> bytes:
        return self.raw

    async def stream(self) -> AsyncGenerator[bytes]:
        yield self.raw

    async def json(self) -> Any:
        return self.parsed.value if self.parsed else None


class Tail:
    """Stands for a request's `receive`, and knows whether the body has come to its end."""

    def __init__(self, request: Request) -> None:
        headers = request.headers
        self.receive = request.receive
        self.ended = False
        self.waits = "expect" in headers  # for our 100 Continue, with the body held back
        self.closes = headers.get("connection", "").lower() == "close"

    async def __call__(self) -> Message:
        message = await self.receive()
        self.ended = not message.get("more_body", False)
        return message

    async def discard(self) -> None:
        """Read to the end and keep nothing, when the connection is to be closed: closing it with
        bytes unread would take our answer back from a client that is still sending.
        """
        size = 0
        while self.closes and not self.waits and not self.ended and size <= MAX_DISCARD:
            size += len((await self()).get("body", b""))


async def read(request: Request) -> ReadRequest:
    """Read a body of any kind into memory. Raises `TooLarge` past 32 MiB."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > MAX_BODY:
        raise TooLarge(f"A body may have {MAX_BODY} bytes; this one says {announced[:20]}.")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise TooLarge(f"A body may have {MAX_BODY} bytes.")
        parts.append(part)
    return ReadRequest(request, b"".join(parts))


async def read_json(request: Request) -> ReadRequest:
    """Read a JSON body. Raises `TooLarge`, `NotJson`, and what `parse` raises."""
    whole = await read(request)
    if not whole.raw:
        return whole
    kind = media_type(request.headers.get("content-type", ""))
    if kind != "application/json" and not kind.endswith("+json"):
        raise NotJson
    return ReadRequest(request, whole.raw, parse(whole.raw))


def media_type(header: str) -> str:
    """The type of a Content-Type header, without its parameters."""
    return header.partition(";")[0].strip().lower()


def parse(raw: bytes) -> Parsed:
    """Raises `MalformedBody` (not JSON, not UTF-8) or `Invalid` (NaN, deeper than 64)."""
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError:  # what is wrong with it, if anything, the slower parser says
        return _clean(_loads(raw))
    if _ESCAPED.search(raw) or not _is_plain(value):
        return _clean(value)
    return Parsed(value, cleaned=False)


def _loads(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except UnicodeDecodeError:
        raise MalformedBody("The body is not UTF-8.") from None
    except RecursionError:
        raise _too_deep("") from None
    except ValueError as error:
        raise MalformedBody(f"The body is not valid JSON: {error}.") from None


def clean_text(text: str) -> str:
    """`text` with what cannot be stored replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


class _Place(NamedTuple):
    """Where in a body: the way from its top."""

    above: _Place | None
    name: str | int

    def __str__(self) -> str:
        names = [str(self.name)[:MAX_PATH]]
        place = self.above
        while place is not None:
            names.append(str(place.name)[:MAX_PATH])
            place = place.above
        # the topmost name is the walk's own, of the list that holds the body
        return ".".join(reversed(names[:-1]))[:MAX_PATH] or "body"


def _too_deep(where: str) -> Invalid:
    return Invalid(f"The body is nested deeper than {MAX_DEPTH}.", field=where or "body")


def _is_plain(value: Any) -> bool:
    """Whether it is no deeper than allowed and all its numbers are finite. A level at a time, for
    this is asked of everything that comes in.
    """
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        found = [item for node in level for item in _items(node) if type(item) in _LOOKED_AT]
        level = [item for item in found if type(item) is not float]
        if not all(math.isfinite(item) for item in found if type(item) is float):
            return False
        if not level:
            return True
    return False


def _items(node: Any) -> Iterable[Any]:
    return cast("dict[str, Any]", node).values() if type(node) is dict else node


def _clean(value: Any) -> Parsed:
    """One walk over the tree, without recursion."""
    cleaned = False
    holder: list[Any] = [value]
    stack: list[tuple[dict[str, Any] | list[Any], int, _Place | None]] = [(holder, 0, None)]
    while stack:
        node, depth, above = stack.pop()
        if depth > MAX_DEPTH:
            raise _too_deep(str(above))
        if isinstance(node, dict):
            cleaned = _clean_keys(node) or cleaned
            items: list[tuple[Any, Any]] = list(node.items())
        else:
            items = list(enumerate(node))
        for key, item in items:
            if isinstance(item, str):
                if _UNSTORABLE.search(item):
                    cast("dict[Any, Any]", node)[key] = clean_text(item)
                    cleaned = True
            elif isinstance(item, dict | list):
                nested = cast("dict[str, Any] | list[Any]", item)
                stack.append((nested, depth + 1, _Place(above, key)))
            elif isinstance(item, float) and not math.isfinite(item):
                raise Invalid("This is not a finite number.", field=str(_Place(above, key)))
    return Parsed(holder[0], cleaned)


def _clean_keys(node: dict[str, Any]) -> bool:
    """Clean the keys of an object in place and in order. Two keys that become one stay two."""
    if not any(_UNSTORABLE.search(key) for key in node):
        return False
    items = list(node.items())
    node.clear()
    for key, item in items:
        name = clean_text(key)
        while name in node:
            name += "\ufffd"
        node[name] = item
    return True
