"""The clients: `Hansei` for synchronous code, `AsyncHansei` for asyncio.

    with Hansei() as client:
        block = client.playbooks.render("support", "refund of a pending order")
        print(block.text)
        for hit in client.memories.search("refund of a pending order", top_k=3).results:
            print(hit.memory.content)

Both have the same resources and methods. With `AsyncHansei`, `await` a result and use `async for`
with a list.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Self, TypeVar, Unpack

import httpx2

from hansei._flows import Flow, Item, SubFlow
from hansei._log import configure as configure_log
from hansei._request import Request, RequestOptions, check_options
from hansei._resource import AsyncResource, RawResponse, Resource
from hansei._retry import Pause, RequestAttempts
from hansei.async_resources import AsyncResources
from hansei.credentials import account_id, resolve_credentials, without_password
from hansei.errors import ConfigurationError
from hansei.resources import Resources

T = TypeVar("T")

TIMEOUT_SECONDS = 60.0
"""How long a response may take. A reflection by a model can take many seconds."""
CONNECT_TIMEOUT_SECONDS = 5.0
MAX_RETRIES = 3
"""Retries after 408, 429, 5xx or a lost connection."""
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")


class _Settings:
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


class Hansei(Resources):
    """The synchronous client. Use it in a `with` block or call `close`. Threads may share it.

    Example:
        with Hansei() as client:
            print(client.playbooks.render("support", "refund of an order").text)
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        max_retries: int = MAX_RETRIES,
        extra_headers: Mapping[str, str] | None = None,
        http_client: httpx2.Client | None = None,
    ) -> None:
        """Raises `ConfigurationError` if no service is configured.

        Args:
            url: Address of the service. Default: HANSEI_URL, then the credentials of `hansei up`.
            api_key: Default: HANSEI_API_KEY, then the credentials of `hansei up`.
            timeout: Seconds that a response may take. The client sends it to the service, which
                ends its model calls in time.
            max_retries: Retries of a request that fails in a way that may pass.
            extra_headers: Headers of each request.
            http_client: Your own client, with your proxy or transport. You close it.
        """
        self._settings = _Settings(url, api_key, timeout, max_retries, extra_headers)
        self._owns_http = http_client is None
        self._http = http_client or httpx2.Client(**self._settings.http_options)

    @property
    def url(self) -> str:
        return self._settings.url

    @property
    def account_id(self) -> str:
        """A fingerprint of the service and the key, for files of this account."""
        return self._settings.account_id

    def with_options(self, **options: Unpack[RequestOptions]) -> Self:
        """The same client with other options: `client.with_options(timeout=5).runs.list()`."""
        check_options(options, self.with_options)
        changed = _without_resources(self, Resource)
        changed._settings = self._settings.with_options(options)
        return changed

    def send(self, request: Request[T], options: RequestOptions | None = None) -> T:
        """Send a request of a resource, with retries."""
        return self.send_raw(request, options or {}).parse()

    def send_raw(self, request: Request[T], options: RequestOptions) -> RawResponse[T]:
        """Send a request, with retries, and return its response unread."""
        attempts, arguments = self._settings.start(request, options)
        while True:
            try:
                outcome = self._http.request(**arguments)
            except httpx2.RequestError as error:
                outcome = error
            result = attempts.evaluate(outcome)
            if not isinstance(result, Pause):
                return RawResponse(result, partial(attempts.parse, result))
            time.sleep(result.seconds)

    def iterate(self, flow: Flow[T]) -> Generator[T]:
        """Execute a flow and yield its items."""
        with closing(flow):
            response: Any = None
            while True:
                try:
                    step = flow.send(response)
                except StopIteration:
                    return
                response = None
                if isinstance(step, Item):
                    yield step.value
                elif isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    response = self.send(step)

    def run(self, flow: SubFlow[T]) -> T:
        """Execute a flow and return its result."""
        (result,) = self.iterate(_with_result(flow))
        return result

    def close(self) -> None:
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Hansei({without_password(self.url)!r})"


class AsyncHansei(AsyncResources):
    """The asyncio client. Use it in an `async with` block or call `aclose`. Tasks may share it.

    Example:
        async with AsyncHansei() as client:
            print((await client.playbooks.render("support", "refund of an order")).text)
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        max_retries: int = MAX_RETRIES,
        extra_headers: Mapping[str, str] | None = None,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        """The arguments are those of `Hansei`. Raises `ConfigurationError`."""
        self._settings = _Settings(url, api_key, timeout, max_retries, extra_headers)
        self._owns_http = http_client is None
        self._http = http_client or httpx2.AsyncClient(**self._settings.http_options)

    @property
    def url(self) -> str:
        return self._settings.url

    @property
    def account_id(self) -> str:
        """A fingerprint of the service and the key, for files of this account."""
        return self._settings.account_id

    def with_options(self, **options: Unpack[RequestOptions]) -> Self:
        """The same client with other options."""
        check_options(options, self.with_options)
        changed = _without_resources(self, AsyncResource)
        changed._settings = self._settings.with_options(options)
        return changed

    async def send(self, request: Request[T], options: RequestOptions | None = None) -> T:
        """Send a request of a resource, with retries."""
        return (await self.send_raw(request, options or {})).parse()

    async def send_raw(self, request: Request[T], options: RequestOptions) -> RawResponse[T]:
        """Send a request, with retries, and return its response unread."""
        attempts, arguments = self._settings.start(request, options)
        while True:
            try:
                outcome = await self._http.request(**arguments)
            except httpx2.RequestError as error:
                outcome = error
            result = attempts.evaluate(outcome)
            if not isinstance(result, Pause):
                return RawResponse(result, partial(attempts.parse, result))
            await asyncio.sleep(result.seconds)

    async def iterate(self, flow: Flow[T]) -> AsyncGenerator[T]:
        """Execute a flow and yield its items."""
        with closing(flow):
            response: Any = None
            while True:
                try:
                    step = flow.send(response)
                except StopIteration:
                    return
                response = None
                if isinstance(step, Item):
                    yield step.value
                elif isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    response = await self.send(step)

    async def run(self, flow: SubFlow[T]) -> T:
        """Execute a flow and return its result."""
        (result,) = [item async for item in self.iterate(_with_result(flow))]
        return result

    async def aclose(self) -> None:
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncHansei({without_password(self.url)!r})"


C = TypeVar("C", bound=object)


def _without_resources(client: C, kind: type) -> C:
    """A copy whose resources are not those of the client."""
    changed = copy.copy(client)
    for name, value in list(vars(changed).items()):
        if isinstance(value, kind):
            del vars(changed)[name]
    return changed


def _with_result(flow: SubFlow[T]) -> Flow[T]:
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
