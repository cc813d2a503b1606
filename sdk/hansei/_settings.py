"""What both clients share: their settings, and the parts of a call that send nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import httpx2

from hansei._flows import Flow, Item, SubFlow
from hansei._log import configure as configure_log
from hansei._request import PageData, Request, RequestOptions, next_page_request
from hansei._retry import RequestAttempts
from hansei.credentials import account_id, resolve_credentials
from hansei.errors import ConfigurationError

T = TypeVar("T")
C = TypeVar("C", bound=object)

TIMEOUT_SECONDS = 60.0
"""How long a response may take. A reflection by a model can take many seconds."""
CONNECT_TIMEOUT_SECONDS = 5.0
MAX_RETRIES = 3
"""Retries after 408, 429, 5xx or a lost connection."""
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")


class ClientSettings:
    """What both clients know of their service."""

    def __init__(
        self,
        url: str | None,
        api_key: str | None,
        timeout: float,
        max_retries: int,
        extra_headers: Mapping[str, str] | None,
    ) -> None:
        configure_log()
        credentials = resolve_credentials(url, api_key)
        base_url = _parse_url(credentials.url)
        self.url = credentials.url
        self.account_id = account_id(credentials)
        self.has_key = credentials.api_key is not None
        self.options = RequestOptions(
            timeout=timeout, max_retries=max_retries, extra_headers=extra_headers or {}
        )
        self._headers = _auth_headers(credentials.api_key)
        self._base_url = str(base_url).rstrip("/")
        self.http_options: dict[str, Any] = {
            # A local service needs no proxy, and plain HTTP no certificates (0.1 s to load).
            "trust_env": base_url.host not in LOCAL_HOSTS,
            "verify": base_url.scheme == "https",
        }

    def with_options(self, options: RequestOptions) -> Self:
        changed = copy.copy(self)
        headers = {**self.options.get("extra_headers", {}), **options.get("extra_headers", {})}
        changed.options = self.options | options | RequestOptions(extra_headers=headers)
        return changed

    def start(
        self, request: Request[T], options: RequestOptions | None
    ) -> tuple[RequestAttempts[T], dict[str, Any]]:
        """The attempts at a request, and the arguments of each for the HTTP client."""
        chosen = self.with_options(options or {}).options
        timeout, retries = chosen.get("timeout", TIMEOUT_SECONDS), chosen.get("max_retries", 0)
        headers = self._headers | {"Prefer": f"wait={max(1, int(timeout))}"} | request.headers
        if key := chosen.get("idempotency_key"):
            headers["Idempotency-Key"] = key
        attempts = RequestAttempts(request, retries, url=self.url, has_key=self.has_key)
        return attempts, {
            "method": request.method,
            "url": self._base_url + request.path,
            "params": request.params or None,
            "content": request.body,
            "headers": headers | dict(chosen.get("extra_headers", {})),
            "timeout": httpx2.Timeout(timeout, connect=min(CONNECT_TIMEOUT_SECONDS, timeout)),
        }


@dataclass(frozen=True)
class RawResponse(Generic[T]):
    """The HTTP response of a call. `parse` returns what the method returns otherwise; for a list,
    the items of one page.
    """

    http_response: httpx2.Response
    parse: Callable[[], T]

    @property
    def status_code(self) -> int:
        return self.http_response.status_code

    @property
    def headers(self) -> httpx2.Headers:
        return self.http_response.headers

    @property
    def text(self) -> str:
        return self.http_response.text


class PagePosition(Generic[T]):
    """A page and how many items may follow it."""

    def __init__(
        self,
        first: Request[PageData[T]],
        options: RequestOptions,
        data: PageData[T],
        remaining: int | None,
    ) -> None:
        self._first = first
        self._options = options
        self._data = data
        self.items = data.items if remaining is None else data.items[:remaining]
        """The items of this page."""
        self.next_cursor = data.next_cursor
        """Where the next page begins. None after the last page."""
        self._remaining = None if remaining is None else remaining - len(self.items)

    def has_next_page(self) -> bool:
        return self.next_cursor is not None and self._remaining != 0

    def _next_request(self) -> Request[PageData[T]] | None:
        return next_page_request(self._first, self._data) if self.has_next_page() else None

    def __repr__(self) -> str:
        more = ", has next page" if self.has_next_page() else ""
        return f"{type(self).__name__}({len(self.items)} items{more})"


def without_resources(client: C, kind: type) -> C:
    """A copy whose resources are not those of the client."""
    changed = copy.copy(client)
    for name, value in list(vars(changed).items()):
        if isinstance(value, kind):
            del vars(changed)[name]
    return changed


def with_result(flow: SubFlow[T]) -> Flow[T]:
    """A flow whose only item is the result."""
    yield Item((yield from flow))


def _parse_url(url: str) -> httpx2.URL:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ConfigurationError(f"'{url}' is not a valid URL: {error}.") from error
    if not parsed.host:
        raise ConfigurationError(f"'{url}' is not a valid URL: it has no host.")
    return parsed


def _auth_headers(api_key: str | None) -> dict[str, str]:
    if api_key is None:
        return {}
    key = api_key.strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError("The API key contains invalid characters.")
    return {"Authorization": f"Bearer {key}"}
