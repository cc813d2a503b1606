"""The base class of the resources of `AsyncHansei`, and its lists.

`make client` writes `_resource.py` from this file, without `async` and `await`.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

from hansei._flows import Flow, SubFlow
from hansei._request import PageData, Request, RequestOptions
from hansei._settings import PagePosition, RawResponse

# pyright: reportPrivateUsage=false

T = TypeVar("T")


class AsyncClient(Protocol):
    async def send(self, request: Request[T], options: RequestOptions | None = None) -> T: ...
    def iterate(self, flow: Flow[T]) -> AsyncGenerator[T]: ...
    async def run(self, flow: SubFlow[T]) -> T: ...
    async def send_raw(self, request: Request[T], options: RequestOptions) -> RawResponse[T]: ...


class AsyncPage(PagePosition[T]):
    """One page of a list.

    Iterating over it yields its items and then those of all following pages, up to the `limit` of
    the call:

        async for playbook in client.playbooks.list():
            print(playbook.name)
    """

    def __init__(
        self,
        client: AsyncClient,
        first: Request[PageData[T]],
        options: RequestOptions,
        data: PageData[T],
        remaining: int | None,
    ) -> None:
        super().__init__(first, options, data, remaining)
        self._client = client

    async def next_page(self) -> AsyncPage[T]:
        """The page after this one. Raises `StopAsyncIteration` on the last page."""
        request = self._next_request()
        if request is None:
            raise StopAsyncIteration("This is the last page.")
        data = await self._client.send(request, self._options)
        return AsyncPage(self._client, self._first, self._options, data, self._remaining)

    async def __aiter__(self) -> AsyncGenerator[T]:
        page = self
        for item in page.items:
            yield item
        while page.has_next_page():
            page = await page.next_page()
            for item in page.items:
                yield item


async def read_page(
    client: AsyncClient, first: Request[PageData[T]], options: RequestOptions
) -> AsyncPage[T]:
    data = await client.send(first, options)
    return AsyncPage(client, first, options, data, first.limit)


class AsyncResource:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    @property
    def with_raw_response(self) -> AsyncRawMethods:
        """The same methods; each returns a `RawResponse` with status, headers and text."""
        return AsyncRawMethods(self)

    async def _send(self, request: Request[T], options: RequestOptions) -> T:
        return await self._client.send(request, options)

    def _list(self, request: Request[PageData[T]], options: RequestOptions) -> AsyncPager[T]:
        return AsyncPager(self._client, request, options)

    def _iterate(self, flow: Flow[T]) -> AsyncGenerator[T]:
        return self._client.iterate(flow)

    async def _run(self, flow: SubFlow[T]) -> T:
        return await self._client.run(flow)


class AsyncRawMethods:
    """The methods of a resource that send one request. Their results are `RawResponse`."""

    def __init__(self, resource: AsyncResource) -> None:
        self._resource = copy.copy(resource)
        send = resource._client.send_raw
        self._resource.__dict__.update(_send=send, _list=send)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, RawResponse[Any]]]:
        return getattr(self._resource, name)


class AsyncPager(Generic[T]):
    """A list that is not read yet: `await` it for its first page, or use `async for`."""

    def __init__(
        self, client: AsyncClient, first: Request[PageData[T]], options: RequestOptions
    ) -> None:
        self._client = client
        self._first = first
        self._options = options

    def __await__(self) -> Generator[Any, None, AsyncPage[T]]:
        return read_page(self._client, self._first, self._options).__await__()

    async def __aiter__(self) -> AsyncGenerator[T]:
        async for item in await self:
            yield item
