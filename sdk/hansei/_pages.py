"""Pages of a list, for both clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator
from typing import Any, Generic, Protocol, TypeVar

from hansei._request import PageData, Request, RequestOptions, next_page_request

T = TypeVar("T")


class SyncSender(Protocol):
    def send(self, request: Request[T], options: RequestOptions | None = None) -> T: ...


class AsyncSender(Protocol):
    async def send(self, request: Request[T], options: RequestOptions | None = None) -> T: ...


class _Position(Generic[T]):
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

    def _next_request(self) -> Request[PageData[T]]:
        request = next_page_request(self._first, self._data) if self.has_next_page() else None
        if request is None:
            raise StopIteration("This is the last page.")
        return request

    def __repr__(self) -> str:
        more = ", has next page" if self.has_next_page() else ""
        return f"{type(self).__name__}({len(self.items)} items{more})"


class Page(_Position[T]):
    """One page of a list.

    Iterating over it yields its items and then those of all following pages, up to the `limit` of
    the call:

        for playbook in client.playbooks.list():
            print(playbook.name)
    """

    def __init__(
        self,
        client: SyncSender,
        first: Request[PageData[T]],
        options: RequestOptions,
        data: PageData[T],
        remaining: int | None,
    ) -> None:
        super().__init__(first, options, data, remaining)
        self._client = client

    def next_page(self) -> Page[T]:
        """The page after this one. Raises `StopIteration` on the last page."""
        data = self._client.send(self._next_request(), self._options)
        return Page(self._client, self._first, self._options, data, self._remaining)

    def __iter__(self) -> Iterator[T]:
        page = self
        yield from page.items
        while page.has_next_page():
            page = page.next_page()
            yield from page.items


class AsyncPage(_Position[T]):
    """One page of a list. `async for` yields its items and those of all following pages."""

    def __init__(
        self,
        client: AsyncSender,
        first: Request[PageData[T]],
        options: RequestOptions,
        data: PageData[T],
        remaining: int | None,
    ) -> None:
        super().__init__(first, options, data, remaining)
        self._client = client

    async def next_page(self) -> AsyncPage[T]:
        """The page after this one. Raises `StopAsyncIteration` on the last page."""
        if not self.has_next_page():
            raise StopAsyncIteration("This is the last page.")
        data = await self._client.send(self._next_request(), self._options)
        return AsyncPage(self._client, self._first, self._options, data, self._remaining)

    async def __aiter__(self) -> AsyncGenerator[T]:
        page = self
        for item in page.items:
            yield item
        while page.has_next_page():
            page = await page.next_page()
            for item in page.items:
                yield item


class AsyncPager(Generic[T]):
    """A list that is not read yet: `await` it for its first page, or use `async for`."""

    def __init__(
        self, client: AsyncSender, first: Request[PageData[T]], options: RequestOptions
    ) -> None:
        self._client = client
        self._first = first
        self._options = options

    def __await__(self) -> Generator[Any, None, AsyncPage[T]]:
        return self._read().__await__()

    async def _read(self) -> AsyncPage[T]:
        data = await self._client.send(self._first, self._options)
        return AsyncPage(self._client, self._first, self._options, data, self._first.limit)

    async def __aiter__(self) -> AsyncGenerator[T]:
        async for item in await self._read():
            yield item
