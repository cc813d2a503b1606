"""Descriptors that turn one description of a call into a method of both clients: on a `Hansei` it
returns what is answered, on an `AsyncHansei` something to await or to iterate with `async for`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from hansei.answers import Page
from hansei.flows import Flow, every
from hansei.request import Request

P = ParamSpec("P")
T = TypeVar("T")


class Sync(Protocol):
    """What a method needs of a client that blocks."""

    def answer(self, request: Request[T]) -> T: ...
    def follow(self, flow: Flow[T]) -> Generator[T]: ...
    def last(self, flow: Flow[T]) -> T: ...


class Async(Protocol):
    """What a method needs of a client for asyncio."""

    def answer(self, request: Request[T]) -> Coroutine[Any, Any, T]: ...
    def follow(self, flow: Flow[T]) -> AsyncGenerator[T]: ...
    def last(self, flow: Flow[T]) -> Coroutine[Any, Any, T]: ...


def _method(describe: Callable[..., Any], act: Callable[[Any], Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return act(describe(*args, **options))

    return update_wrapper(call, describe)


class Value(Generic[P, T]):
    """One request; gives what it is answered."""

    def __init__(self, describe: Callable[P, Request[T]]) -> None:
        self.describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Sync, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Async, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Sync | Async | None, owner: type) -> Any:
        return self if client is None else _method(self.describe, client.answer)


class Items(Generic[P, T]):
    """A list; gives all its items, fetching page after page as they are used."""

    def __init__(self, describe: Callable[P, Request[Page[T]]]) -> None:
        self.describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Sync, owner: type) -> Callable[P, Generator[T]]: ...
    @overload
    def __get__(self, client: Async, owner: type) -> Callable[P, AsyncGenerator[T]]: ...
    def __get__(self, client: Sync | Async | None, owner: type) -> Any:
        if client is None:
            return self
        return _method(self.describe, lambda request: client.follow(every(request)))


class Steps(Generic[P, T]):
    """Several requests; gives items on the way."""

    def __init__(self, describe: Callable[P, Flow[T]]) -> None:
        self.describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Sync, owner: type) -> Callable[P, Generator[T]]: ...
    @overload
    def __get__(self, client: Async, owner: type) -> Callable[P, AsyncGenerator[T]]: ...
    def __get__(self, client: Sync | Async | None, owner: type) -> Any:
        return self if client is None else _method(self.describe, client.follow)


class Final(Generic[P, T]):
    """Several requests; gives one thing in the end."""

    def __init__(self, describe: Callable[P, Flow[T]]) -> None:
        self.describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Sync, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Async, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Sync | Async | None, owner: type) -> Any:
        return self if client is None else _method(self.describe, client.last)
