"""The base classes of the resources of both clients."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import httpx2

from hansei._flows import Flow, SubFlow
from hansei._pages import AsyncPager, AsyncSender, Page, SyncSender
from hansei._request import PageData, Request, RequestOptions

# pyright: reportPrivateUsage=false

T = TypeVar("T")


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


class SyncClient(SyncSender, Protocol):
    def iterate(self, flow: Flow[T]) -> Generator[T]: ...
    def run(self, flow: SubFlow[T]) -> T: ...
    def send_raw(self, request: Request[T], options: RequestOptions) -> RawResponse[T]: ...


class AsyncClient(AsyncSender, Protocol):
    def iterate(self, flow: Flow[T]) -> AsyncGenerator[T]: ...
    async def run(self, flow: SubFlow[T]) -> T: ...
    async def send_raw(self, request: Request[T], options: RequestOptions) -> RawResponse[T]: ...


class Resource:
    def __init__(self, client: SyncClient) -> None:
        self._client = client

    @property
    def with_raw_response(self) -> RawMethods:
        """The same methods; each returns a `RawResponse` with status, headers and text."""
        return RawMethods(self)

    def _send(self, request: Request[T], options: RequestOptions) -> T:
        return self._client.send(request, options)

    def _list(self, request: Request[PageData[T]], options: RequestOptions) -> Page[T]:
        data = self._client.send(request, options)
        return Page(self._client, request, options, data, request.limit)

    def _iterate(self, flow: Flow[T]) -> Generator[T]:
        return self._client.iterate(flow)

    def _run(self, flow: SubFlow[T]) -> T:
        return self._client.run(flow)


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


class RawMethods:
    """The methods of a resource that send one request. Their results are `RawResponse`."""

    def __init__(self, resource: Resource) -> None:
        self._resource = copy.copy(resource)
        send = resource._client.send_raw
        self._resource.__dict__.update(_send=send, _list=send)

    def __getattr__(self, name: str) -> Callable[..., RawResponse[Any]]:
        return getattr(self._resource, name)


class AsyncRawMethods:
    """The methods of a resource that send one request. Await them for a `RawResponse`."""

    def __init__(self, resource: AsyncResource) -> None:
        self._resource = copy.copy(resource)
        send = resource._client.send_raw
        self._resource.__dict__.update(_send=send, _list=send)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, RawResponse[Any]]]:
        return getattr(self._resource, name)
