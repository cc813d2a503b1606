"""Records the calls of OpenAI's and Anthropic's clients in the current trace.

client = record_openai(OpenAI())
with hansei.trace("refund an order", playbook="support"):
    client.chat.completions.create(...)  # recorded: the messages, the reply, its tool calls
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from hansei.integrations.conversation import Conversation
from hansei.integrations.streamed_replies import watch_stream
from hansei.recording.trace import RecordedTrace, current_trace

_conversations: WeakKeyDictionary[RecordedTrace, Conversation] = WeakKeyDictionary()
Client = TypeVar("Client")
Reader = Callable[[dict[str, Any], Any], tuple[Sequence[Any], Sequence[Any]]]
"""The arguments and the response of a call → the messages that were sent and received."""


def record_openai(client: Client, *, tools: bool = True) -> Client:
    """Record the calls of an `OpenAI` or `AsyncOpenAI` client: `chat.completions.create` and
    `responses.create`. Returns the client. With `tools=False`, tool calls are left to
    `@hansei.tool`. A streamed reply (`stream=True`) is recorded when the agent has read it.
    """
    target = cast(Any, client)
    _record(target.chat.completions, "create", _read_chat, tools)
    _record(target.responses, "create", _read_responses, tools)
    return client


def record_anthropic(client: Client, *, tools: bool = True) -> Client:
    """Record the calls of an `Anthropic` or `AsyncAnthropic` client: `messages.create`. As
    `record_openai`.
    """
    _record(cast(Any, client).messages, "create", _read_anthropic, tools)
    return client


def _record(resource: Any, name: str, read: Reader, tools: bool) -> None:
    """Replace a method of this client by one that records; other clients are unchanged."""
    call = getattr(resource, name)
    if getattr(call, "_hansei_records", False):
        return

    async def finish_async(response: Awaitable[Any], kwargs: dict[str, Any]) -> Any:
        try:
            result = await response
        except Exception as error:
            _add(read, kwargs, None, tools, error)
            raise
        _add(read, kwargs, result, tools, None)
        return result

    @functools.wraps(call)
    def recording(*args: Any, **kwargs: Any) -> Any:
        try:
            response = call(*args, **kwargs)
        except Exception as error:
            _add(read, kwargs, None, tools, error)
            raise
        # An asynchronous client may hide its coroutine function in a decorator.
        if inspect.isawaitable(response):
            return finish_async(response, kwargs)
        _add(read, kwargs, response, tools, None)
        return response

    cast(Any, recording)._hansei_records = True
    setattr(resource, name, recording)


def _add(
    read: Reader, kwargs: dict[str, Any], response: Any, tools: bool, error: Exception | None
) -> None:
    trace = current_trace()
    if trace is None:
        return
    is_streamed = bool(kwargs.get("stream"))
    try:
        inputs, outputs = read(kwargs, None if is_streamed else response)
    except Exception:
        inputs, outputs = (), ()
    model = str(kwargs.get("model"))
    conversation = _conversations.setdefault(trace, Conversation())

    def finish(replies: Sequence[Any], failure: BaseException | None) -> None:
        # The inputs again: they count as what the trace has of this call.
        conversation.record(trace, inputs, replies, model=model, records_tools=tools)
        if failure is not None:
            trace.error(failure)
        elif not replies:
            trace.event("llm_call", metadata={"model": model})

    if is_streamed and response is not None:
        conversation.record(trace, inputs, (), model=model, records_tools=tools)
        if watch_stream(response, finish):
            return
    finish(outputs, error)


def _read_chat(kwargs: dict[str, Any], response: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    choices: list[Any] = [] if response is None else response.choices
    return list(kwargs.get("messages") or ()), [choice.message for choice in choices]


def _read_responses(kwargs: dict[str, Any], response: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    given = kwargs.get("input")
    items: list[Any] = (
        [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
    )
    if isinstance(instructions := kwargs.get("instructions"), str):
        items.insert(0, {"role": "system", "content": instructions})
    return items, [] if response is None else list(response.output)


def _read_anthropic(kwargs: dict[str, Any], response: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    messages: list[Any] = list(kwargs.get("messages") or ())
    system: Any = kwargs.get("system")
    if isinstance(system, (str, list)):
        messages.insert(0, {"role": "system", "content": system})
    return messages, [] if response is None else [response]
