"""Reading JSON that strangers send: malformed, too deep and NaN are refused by name; NUL and lone
surrogates, which
PostgreSQL cannot store, become U+FFFD and are reported as `cleaned`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, cast

from fastapi import Request, Response
from fastapi.routing import APIRoute

from apps.memory_api.core.errors import HanseiError, Invalid

MAX_DEPTH = 64
MAX_BODY = 32 * 1024 * 1024

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class MalformedBody(HanseiError):
    """The body is not valid JSON."""

    status, code = 400, "malformed_json"


class Parsed:
    """A JSON value, and whether anything in it had to be cleaned."""

    __slots__ = ("cleaned", "value")

    def __init__(self, value: Any, cleaned: bool) -> None:
        self.value = value
        self.cleaned = cleaned


def parse(raw: bytes) -> Parsed:
    """Raises `MalformedBody` (not JSON, not UTF-8) or `Invalid` (NaN, deeper than 64)."""
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise MalformedBody("The body is not UTF-8.") from None
    except RecursionError:
        raise Invalid(f"The body is nested deeper than {MAX_DEPTH}.") from None
    except ValueError as error:
        raise MalformedBody(f"The body is not valid JSON: {error}.") from None
    return _clean(value)


def clean_text(text: str) -> str:
    """`text` with what cannot be stored replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def _refuse_constant(name: str) -> NoReturn:
    raise Invalid(f"{name} is not a number that can be stored.")


def _clean(value: Any) -> Parsed:
    """One walk over the tree, without recursion."""
    cleaned = False
    holder: list[Any] = [value]
    stack: list[tuple[Any, int]] = [(holder, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise Invalid(f"The body is nested deeper than {MAX_DEPTH}.")
        cleaned = _clean_keys(node) or cleaned
        places = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        for place, item in cast(list[tuple[Any, Any]], places):
            if isinstance(item, str):
                if _UNSTORABLE.search(item):
                    node[place] = clean_text(item)
                    cleaned = True
            elif isinstance(item, (dict, list)):
                stack.append((item, depth + 1))
            elif isinstance(item, float) and not math.isfinite(item):
                raise Invalid(f"'{place}' is not a finite number.", field=str(place))
    return Parsed(holder[0], cleaned)


def _clean_keys(node: Any) -> bool:
    if not isinstance(node, dict):
        return False
    body = cast(dict[str, Any], node)
    bad = [key for key in body if _UNSTORABLE.search(key)]
    for key in bad:
        body[clean_text(key)] = body.pop(key)
    return bool(bad)


class _CleanRequest(Request):
    """A request whose body was read by us."""

    def __init__(self, request: Request, raw: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = raw
        self._value = value

    async def json(self) -> Any:
        return self._value


class CleanRoute(APIRoute):
    """Every JSON route reads its body through `parse`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def read_then_handle(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == "application/json" or kind.endswith("+json"):
                raw = await request.body()
                if raw:
                    parsed = parse(raw)
                    request.state.cleaned = parsed.cleaned
                    request = _CleanRequest(request, raw, parsed.value)
            return await handle(request)

        return read_then_handle
