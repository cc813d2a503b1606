"""Decorators: `tool` records the calls of a function, `traced` records its run as a trace."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

from hansei.recording.encoding import to_text
from hansei.recording.trace import (
    RecordedTrace,
    ToolCall,
    current_trace,
    trace,
    warn_outside_trace,
)

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@overload
def tool(function: F) -> F: ...


@overload
def tool(*, name: str | None = None) -> Callable[[F], F]: ...


def tool(function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Record each call of a function in the current trace, with its result or exception. Outside a
    trace, the function just runs. `name` defaults to the function's name.
    """
    if function is None:
        return functools.partial(tool, name=name)
    _refuse_generator(function)
    tool_name = name or getattr(function, "__name__", type(function).__name__)
    arguments = _argument_reader(function)

    def start(args: Any, kwargs: Any) -> ToolCall | None:
        current = current_trace()
        if current is None:
            warn_outside_trace(tool_name)
            return None
        return current.tool_call(tool_name, arguments(args, kwargs))

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            call = start(args, kwargs)
            if call is None:
                return await function(*args, **kwargs)
            with call:
                result = await function(*args, **kwargs)
                call.respond(result)
                return result

        return call_async

    @functools.wraps(function)
    def call_sync(*args: Any, **kwargs: Any) -> Any:
        call = start(args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        with call:
            result = function(*args, **kwargs)
            call.respond(result)
            return result

    return call_sync


def traced(task: str | None = None, **options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Record each call of a function as a trace. `task` may name its arguments:
    `@traced("refund order {order_id}", playbook="support")`. It defaults to the function's name.
    `options` are those of `trace` without `external_id`. The result is the generated answer.
    """
    if "external_id" in options:
        raise TypeError("`traced` has no `external_id`: each call is a trace with its own.")

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        _refuse_generator(function)
        arguments = _argument_reader(function)

        def start(args: Any, kwargs: Any) -> RecordedTrace:
            values = arguments(args, kwargs)
            recorded = trace(_format_task(task, function, values), **options)
            recorded.message("user", values)
            return recorded

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                async with start(args, kwargs) as recorded:
                    result = await function(*args, **kwargs)
                    _record_answer(recorded, result)
                    return result

            return cast("Callable[P, R]", run_async)

        @functools.wraps(function)
        def run_sync(*args: Any, **kwargs: Any) -> Any:
            with start(args, kwargs) as recorded:
                result = function(*args, **kwargs)
                _record_answer(recorded, result)
                return result

        return cast("Callable[P, R]", run_sync)

    return decorate


def _record_answer(recorded: RecordedTrace, result: object) -> None:
    if result is None:
        return
    recorded.message("assistant", result)
    recorded.update(generated_answer=to_text(result))


def _argument_reader(function: Callable[..., Any]) -> Callable[[Any, Any], dict[str, Any]]:
    """Maps the arguments of a call to their names. The `self` of a method is left out."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return lambda args, kwargs: {"args": list(args), **kwargs}

    def read(args: Any, kwargs: Any) -> dict[str, Any]:
        try:
            named = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError:
            return {"args": list(args), **kwargs}
        named.pop("self", None)
        return named

    return read


def _format_task(task: str | None, function: Callable[..., Any], values: dict[str, Any]) -> str:
    if task is None:
        return getattr(function, "__name__", "run").replace("_", " ")
    try:
        return task.format(**values)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError):
        return task


def _refuse_generator(function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError("A generator function cannot be recorded. Use `with hansei.trace(...)`.")
