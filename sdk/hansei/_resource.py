"""The base class of the resources of `Hansei`, and its lists.

Generated from its `async` twin by `make client`; do not edit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from hansei._flows import Flow, SubFlow
from hansei._request import PageData, Request, RequestOptions
from hansei._settings import PagePosition, RawResponse

# pyright: reportPrivateUsage=false

T = TypeVar("T")


class Client(Protocol):
    def send(self, request: Request[T], options: RequestOptions | None = None) -> T: ...
    def iterate(self, flow: Flow[T]) -> Generator[T]: ...
    def run(self, flow: SubFlow[T]) -> T: ...
    def send_raw(self, request: Request[T], options: RequestOptions) -> RawResponse[T]: ...


class Page(PagePosition[T]):
    """One page of a list.

    Iterating over it yields its items and then those of all following pages, up to the `limit` of
    the call:

        for playbook in client.playbooks.list():
            print(playbook.name)
    """

    def __init__(
        self,
        client: Client,
        first: Request[PageData[T]],
        options: RequestOptions,
        data: PageData[T],
        remaining: int | None,
    ) -> None:
        super().__init__(first, options, data, remaining)
        self._client = client

    def next_page(self) -> Page[T]:
        """The page after this one. Raises `StopIteration` on the last page."""
        request = self._next_request()
        if request is None:
            raise StopIteration("This is the last page.")
        data = self._client.send(request, self._options)
        return Page(self._client, self._first, self._options, data, self._remaining)

    def __iter__(self) -> Generator[T]:
        page = self
        for item in page.items:
            yield item
        while page.has_next_page():
            page = page.next_page()
            for item in page.items:
                yield item


def read_page(client: Client, first: Request[PageData[T]], options: RequestOptions) -> Page[T]:
    data = client.send(first, options)
    return Page(client, first, options, data, first.limit)


class Resource:
    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def with_raw_response(self) -> RawMethods:
        """The same methods; each returns a `RawResponse` with status, headers and text."""
        return RawMethods(self)

    def _send(self, request: Request[T], options: RequestOptions) -> T:
        return self._client.send(request, options)

    def _list(self, request: Request[PageData[T]], options: RequestOptions) -> Page[T]:
        return read_page(self._client, request, options)

    def _iterate(self, flow: Flow[T]) -> Generator[T]:
        return self._client.iterate(flow)

    def _run(self, flow: SubFlow[T]) -> T:
        return self._client.run(flow)


class RawMethods:
    """The methods of a resource that send one request. Their results are `RawResponse`."""

    def __init__(self, resource: Resource) -> None:
        self._resource = copy.copy(resource)
        send = resource._client.send_raw
        self._resource.__dict__.update(_send=send, _list=send)

    def __getattr__(self, name: str) -> Callable[..., RawResponse[Any]]:
        return getattr(self._resource, name)
