"""Descriptors that turn a request description into a method of both clients.

On `Hansei` the method returns the result. On `AsyncHansei` it returns something to `await`, or to
iterate over with `async for`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from hansei._flows import Flow, iterate_pages
from hansei._request import Request
from hansei.types import Page

P = ParamSpec("P")
T = TypeVar("T")
# pyright: reportPrivateUsage=false
# The clients offer these three methods to this module only.


class SyncClient(Protocol):
    def _send(self, request: Request[T]) -> T: ...
    def _iterate(self, flow: Flow[T]) -> Generator[T]: ...
    def _run_to_end(self, flow: Flow[T]) -> T: ...


class AsyncClient(Protocol):
    def _send(self, request: Request[T]) -> Coroutine[Any, Any, T]: ...
    def _iterate(self, flow: Flow[T]) -> AsyncGenerator[T]: ...
    def _run_to_end(self, flow: Flow[T]) -> Coroutine[Any, Any, T]: ...


def _bind(describe: Callable[..., Any], execute: Callable[[Any], Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return execute(describe(*args, **options))

    return update_wrapper(call, describe)


class RequestMethod(Generic[P, T]):
    """Sends one request and returns its response."""

    def __init__(self, describe: Callable[P, Request[T]]) -> None:
        self.describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: SyncClient, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: SyncClient | AsyncClient | None, owner: type) -> Any:
        return self if client is None else _bind(self.describe, client._send)


class ListMethod(Generic[P, T]):
    """Yields all items of a list. Fetches the next page when it is needed."""

    def __init__(self, describe: Callable[P, Request[Page[T]]]) -> None:
        self.describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: SyncClient, owner: type) -> Callable[P, Generator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncGenerator[T]]: ...
    def __get__(self, client: SyncClient | AsyncClient | None, owner: type) -> Any:
        if client is None:
            return self
        return _bind(self.describe, lambda request: client._iterate(iterate_pages(request)))


class FlowMethod(Generic[P, T]):
    """Sends several requests and yields items on the way."""

    def __init__(self, describe: Callable[P, Flow[T]]) -> None:
        self.describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: SyncClient, owner: type) -> Callable[P, Generator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncGenerator[T]]: ...
    def __get__(self, client: SyncClient | AsyncClient | None, owner: type) -> Any:
        return self if client is None else _bind(self.describe, client._iterate)


class ResultMethod(Generic[P, T]):
    """Sends several requests and returns one result."""

    def __init__(self, describe: Callable[P, Flow[T]]) -> None:
        self.describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: SyncClient, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: SyncClient | AsyncClient | None, owner: type) -> Any:
        return self if client is None else _bind(self.describe, client._run_to_end)
