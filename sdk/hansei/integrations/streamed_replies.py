"""Reads the replies of streamed model calls (`stream=True`) while the agent reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

Finish = Callable[[list[Any], BaseException | None], None]
"""Receives the messages of the reply as far as it was read, and the error that ended it."""


class StreamedReply:
    """Collects a reply from the events of OpenAI's chat and Responses APIs and of Anthropic's."""

    def __init__(self) -> None:
        self._choices: dict[int, dict[str, Any]] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._items: list[Any] = []

    def add(self, event: Any) -> None:
        """Add one event. An event that cannot be read is left out."""
        try:
            kind = getattr(event, "type", None)
            if kind is None:
                self._add_chunk(event)
            elif kind == "response.output_item.done":
                self._items.append(event.item)
            elif kind == "content_block_start":
                self._blocks[event.index] = event.content_block.model_dump(mode="json")
            elif kind == "content_block_delta":
                self._add_delta(self._blocks[event.index], event.delta)
        except Exception:
            return

    def messages(self) -> list[Any]:
        """The reply so far, in the form that `Conversation` reads."""
        blocks: list[dict[str, Any]] = []
        for block in self._blocks.values():
            partial = block.pop("partial_json", None)
            blocks.append(block | {"input": partial} if partial else block)
        found: list[Any] = [*self._items]
        for choice in self._choices.values():
            calls = list(choice["tool_calls"].values())
            found.append({"role": "assistant", "content": choice["content"], "tool_calls": calls})
        if blocks:
            found.append({"role": "assistant", "content": blocks})
        return found

    def _add_chunk(self, chunk: Any) -> None:
        for choice in chunk.choices:
            reply = self._choices.setdefault(choice.index, {"content": "", "tool_calls": {}})
            reply["content"] += choice.delta.content or ""
            for part in choice.delta.tool_calls or ():
                empty: dict[str, Any] = {"id": None, "function": {"name": "", "arguments": ""}}
                call = reply["tool_calls"].setdefault(part.index, empty)
                call["id"] = part.id or call["id"]
                if part.function is not None:
                    call["function"]["name"] += part.function.name or ""
                    call["function"]["arguments"] += part.function.arguments or ""

    def _add_delta(self, block: dict[str, Any], delta: Any) -> None:
        if delta.type == "text_delta":
            block["text"] += delta.text
        elif delta.type == "input_json_delta":
            block["partial_json"] = block.get("partial_json", "") + delta.partial_json


def watch_stream(stream: Any, finish: Finish) -> bool:
    """Call `finish` when the agent has read the stream to its end or to an error. The stream keeps
    its type. False if this is no stream of the OpenAI or Anthropic client.
    """
    events = getattr(stream, "_iterator", None)
    if hasattr(events, "__anext__"):
        stream._iterator = _watch_async(cast("AsyncIterator[Any]", events), finish)
    elif hasattr(events, "__next__"):
        stream._iterator = _watch(cast("Iterator[Any]", events), finish)
    else:
        return False
    return True


def _watch(events: Iterator[Any], finish: Finish) -> Iterator[Any]:
    reply, failure = StreamedReply(), None
    try:
        for event in events:
            reply.add(event)
            yield event
    except Exception as error:
        failure = error
        raise
    finally:
        finish(reply.messages(), failure)


async def _watch_async(events: AsyncIterator[Any], finish: Finish) -> AsyncIterator[Any]:
    reply, failure = StreamedReply(), None
    try:
        async for event in events:
            reply.add(event)
            yield event
    except Exception as error:
        failure = error
        raise
    finally:
        finish(reply.messages(), failure)
