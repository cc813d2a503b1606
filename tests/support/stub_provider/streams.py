"""Streamed answers (server-sent events) of the chat, Responses and Messages protocols."""

from __future__ import annotations

import json
from typing import Any

from tests.support.stub_provider.call import Api

Body = dict[str, Any]


def stream_of(api: Api, body: Body) -> str:
    """The body of a plain answer, as the events of a stream. Its text comes in two pieces."""
    if api == "chat":
        return "".join(f"data: {json.dumps(each)}\n\n" for each in _chat(body)) + "data: [DONE]\n\n"
    events = _responses(body) if api == "responses" else _messages(body)
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)


def _chat(body: Body) -> list[Body]:
    shared = {"id": body["id"], "created": body["created"], "model": body["model"]}
    head = shared | {"object": "chat.completion.chunk"}
    chunks: list[Body] = []
    for choice in body["choices"]:
        deltas: list[Body] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in _pieces(choice["message"]["content"] or "")]
        for index, call in enumerate(choice["message"].get("tool_calls", ())):
            function = call["function"]
            first = call | {"index": index, "function": function | {"arguments": ""}}
            deltas.append({"tool_calls": [first]})
            for piece in _pieces(function["arguments"]):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        chunks += [_chunk(head, choice["index"], delta, None) for delta in deltas]
        chunks.append(_chunk(head, choice["index"], {}, choice["finish_reason"]))
    return chunks


def _chunk(head: Body, index: int, delta: Body, finish: str | None) -> Body:
    return head | {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def _responses(body: Body) -> list[Body]:
    events: list[Body] = [{"type": "response.created", "response": body | {"output": []}}]
    for index, item in enumerate(body["output"]):
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": body})
    return [event | {"sequence_number": n} for n, event in enumerate(events)]


def _messages(body: Body) -> list[Body]:
    events: list[Body] = [{"type": "message_start", "message": body | {"content": []}}]
    for index, block in enumerate(body["content"]):
        if block["type"] == "tool_use":
            empty, text = block | {"input": {}}, json.dumps(block["input"])
            kind, key = "input_json_delta", "partial_json"
        else:
            empty, text, kind, key = block | {"text": ""}, block["text"], "text_delta", "text"
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        for piece in _pieces(text):
            delta = {"type": kind, key: piece}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": body["usage"]["output_tokens"]}
    events.append({"type": "message_delta", "delta": ending, "usage": usage})
    return [*events, {"type": "message_stop"}]


def _pieces(text: str) -> list[str]:
    half = len(text) // 2
    return [text[:half], text[half:]]
