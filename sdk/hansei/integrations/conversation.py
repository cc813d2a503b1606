"""Records the messages of model calls in a trace. A call repeats the conversation so far; each of
its messages is recorded once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

from hansei.recording.encoding import to_text
from hansei.recording.trace import RecordedTrace

log = logging.getLogger("hansei")

Block = Mapping[str, Any]
_ROLES = {"user": "user", "assistant": "assistant", "tool": "tool"}
_TEXTS = ("text", "input_text", "output_text", None)


class Conversation:
    """What a trace has of its model calls. One for all clients that the agent run uses."""

    def __init__(self) -> None:
        self._known = Counter[str]()
        self._tool_names: dict[str, str] = {}

    def record(
        self,
        trace: RecordedTrace,
        inputs: Iterable[Any],
        outputs: Iterable[Any],
        *,
        model: str,
        records_tools: bool,
    ) -> None:
        """Record the messages of one call in the form of the OpenAI chat, OpenAI Responses or
        Anthropic API. Never raises.
        """
        try:
            writer = _MessageWriter(trace, self._known, self._tool_names, records_tools)
            for message in inputs:
                writer.write(message, {})
            writer.is_reply = True
            for message in outputs:
                writer.write(message, {"model": model} if model else {})
        except Exception as error:
            log.warning("A model call is not recorded: %r", error)


@dataclass
class _MessageWriter:
    """Writes the messages of one call. `known` counts what the trace has."""

    trace: RecordedTrace
    known: Counter[str]
    tool_names: dict[str, str]
    records_tools: bool
    seen: Counter[str] = field(default_factory=Counter[str])
    is_reply: bool = False
    """Whether the messages are those of this call. Their text is new, even if an earlier reply,
    which this call did not repeat, was the same.
    """

    def write(self, value: Any, metadata: Block) -> None:
        message = _plain(value)
        kind = message.get("type")
        role = _ROLES.get(str(message.get("role")), "system")
        if kind in ("function_call", "tool_use"):
            arguments = message.get("arguments", message.get("input"))
            self._tool_call(
                message.get("name"), message.get("call_id") or message.get("id"), arguments
            )
            return
        if kind in ("function_call_output", "tool_result") or role == "tool":
            call_id = (
                message.get("call_id") or message.get("tool_use_id") or message.get("tool_call_id")
            )
            result = message.get("output", message.get("content"))
            self._tool_response(call_id, result, is_error=bool(message.get("is_error")))
            return
        if kind not in (None, "message"):
            return  # reasoning and other items
        blocks = _blocks(message.get("content"))
        text = "\n".join(str(block["text"]) for block in blocks if _is_text(block))
        if text.strip() and self._is_new(f"{role}\0{text}", is_new=self.is_reply):
            self.trace.message(role, text, **metadata)  # type: ignore[arg-type]
        for block in blocks:
            if block.get("type") in ("tool_use", "tool_result"):
                self.write(block, {})
        for call in _blocks(message.get("tool_calls")):
            function = _plain(call.get("function") or call.get("custom"))
            self._tool_call(
                function.get("name"),
                call.get("id"),
                function.get("arguments", function.get("input")),
            )

    def _is_new(self, content: str, *, is_new: bool = False) -> bool:
        """Whether the trace does not have this occurrence of the content in the conversation."""
        digest = sha256(content.encode("utf-8", "replace")).hexdigest()
        self.seen[digest] = max(self.seen[digest], self.known[digest] if is_new else 0) + 1
        if self.seen[digest] <= self.known[digest]:
            return False
        self.known[digest] = self.seen[digest]
        return True

    def _tool_call(self, name: Any, call_id: Any, arguments: Any) -> None:
        if self.records_tools and self._is_new(f"call\0{call_id}"):
            self.tool_names[str(call_id)] = str(name)
            metadata = {"call_id": call_id}
            self.trace.event("tool_call", arguments, tool_name=str(name), metadata=metadata)

    def _tool_response(self, call_id: Any, result: Any, *, is_error: bool) -> None:
        if not self.records_tools or not self._is_new(f"result\0{call_id}"):
            return
        blocks = _blocks(result)
        has_text = bool(blocks) and all(_is_text(block) for block in blocks)
        text = "\n".join(str(block["text"]) for block in blocks) if has_text else to_text(result)
        self.trace.event(
            "tool_response",
            text,
            tool_name=self.tool_names.get(str(call_id)),
            error={"message": text[:2_000]} if is_error else None,
            metadata={"call_id": call_id},
        )


def _is_text(block: Block) -> bool:
    return block.get("type") in _TEXTS and isinstance(block.get("text"), str)


def _blocks(content: Any) -> list[Block]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, (list, tuple)):
        return []
    return [_plain(item) for item in cast("list[Any]", content)]


def _plain(value: Any) -> Block:
    """The fields of an object of an SDK, or of a dict; a string is text."""
    if isinstance(value, Mapping):
        return cast(Block, value)
    if isinstance(value, str):
        return {"type": "text", "text": value}
    dump = getattr(value, "model_dump", None)
    return cast(Block, dump(mode="json")) if callable(dump) else {}
