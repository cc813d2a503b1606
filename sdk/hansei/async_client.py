"""The client for asyncio, `AsyncHansei`, with the resources and methods of `Hansei`.

    async with AsyncHansei() as client:
        async for playbook in client.playbooks.list():
            print(playbook.name)

`make client` writes `client.py` from this file, without `async` and `await`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Self, TypeVar, Unpack

import httpx2

from hansei._async_resource import AsyncResource
from hansei._flows import Flow, Item, SubFlow
from hansei._request import Request, RequestOptions, check_options
from hansei._retry import Pause
from hansei._settings import (
    MAX_RETRIES,
    TIMEOUT_SECONDS,
    ClientSettings,
    RawResponse,
    with_result,
    without_resources,
)
from hansei.async_resources import AsyncResources
from hansei.credentials import without_password

T = TypeVar("T")


class AsyncHansei(AsyncResources):
    """The asyncio client. Use it in an `async with` block or call `aclose`. Tasks may share it.

    Example:
        async with AsyncHansei() as client:
            block = await client.playbooks.render("support", "refund of an order")
            print(block.text)
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
        self._settings = ClientSettings(url, api_key, timeout, max_retries, extra_headers)
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
        """The same client with other options: `client.with_options(timeout=5).runs.list()`."""
        check_options(options, self.with_options)
        changed = without_resources(self, AsyncResource)
        changed._settings = self._settings.with_options(options)
        return changed

    async def send(self, request: Request[T], options: RequestOptions | None = None) -> T:
        """Send a request of a resource, with retries."""
        response = await self.send_raw(request, options or {})
        return response.parse()

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
        (result,) = [item async for item in self.iterate(with_result(flow))]
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
