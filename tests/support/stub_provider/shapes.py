"""The providers' wire shapes: field names as in recorded exchanges, values made up."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
from dataclasses import dataclass
from typing import Any

from tests.support.stub_provider.behaviours import Answer, Fail
from tests.support.stub_provider.call import Call

DEFAULT_DIMENSIONS = 1536
MODELS = ("some-model", "other-model")
"""What the stub lists."""


@dataclass(frozen=True)
class Tokens:
    """`input` includes `cached`."""

    input: int
    output: int
    cached: int = 0
    written: int = 0


def body_of(call: Call, answer: Answer, tokens: Tokens) -> dict[str, Any]:
    """The 200 answer of the call's protocol."""
    if call.api == "chat":
        return _add_chat_calls(_chat(call, answer, tokens), call, answer)
    if call.api == "responses":
        return _add_function_calls(_responses(call, answer, tokens), call, answer)
    if call.api == "messages":
        return _add_tool_uses(_messages(call, answer, tokens), call, answer)
    if call.api == "models":
        listed = [{"id": name, "object": "model", "created": 0} for name in MODELS]
        return {"object": "list", "data": listed, "has_more": False}
    return _embeddings(call)


def error_of(call: Call, fail: Fail) -> str:
    """The body of an HTTP error in the call's protocol."""
    if fail.raw is not None:
        return fail.raw
    if call.api == "messages":
        error = {"type": fail.kind, "message": fail.message}
        return json.dumps({"type": "error", "error": error, "request_id": f"req_{call.number}"})
    return json.dumps(
        {
            "error": {
                "message": fail.message,
                "type": fail.kind,
                "param": None,
                "code": fail.kind,
            }
        }
    )


def _chat(call: Call, answer: Answer, tokens: Tokens) -> dict[str, Any]:
    refused = answer.finish == "refusal"
    return {
        "id": f"chatcmpl-{call.number}",
        "object": "chat.completion",
        "created": 1_764_499_723,
        "model": call.model,
        "service_tier": "default",
        "system_fingerprint": "fp_stub",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None if refused else answer.text,
                    "refusal": answer.text if refused else None,
                    "annotations": [],
                },
                "logprobs": None,
                "finish_reason": "length" if answer.finish == "length" else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
            "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
    }


def _responses(call: Call, answer: Answer, tokens: Tokens) -> dict[str, Any]:
    cut = answer.finish == "length"
    part = (
        {"type": "refusal", "refusal": answer.text}
        if answer.finish == "refusal"
        else {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
    )
    return {
        "id": f"resp_{call.number}",
        "object": "response",
        "created_at": 1_755_280_559,
        "status": "incomplete" if cut else "completed",
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": call.body.get("instructions"),
        "max_output_tokens": call.body.get("max_output_tokens"),
        "max_tool_calls": None,
        "model": call.model,
        "output": [
            {
                "id": f"msg_{call.number}",
                "type": "message",
                "status": "incomplete" if cut else "completed",
                "role": "assistant",
                "content": [part],
            }
        ],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": call.body.get("prompt_cache_key"),
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": call.body.get("text", {"format": {"type": "text"}, "verbosity": "medium"}),
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": tokens.input,
            "input_tokens_details": {"cached_tokens": tokens.cached},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens.input + tokens.output,
        },
        "user": None,
        "metadata": {},
    }


_STOP = {"stop": "end_turn", "length": "max_tokens", "refusal": "refusal"}


def _messages(call: Call, answer: Answer, tokens: Tokens) -> dict[str, Any]:
    refused = answer.finish == "refusal"
    return {
        "id": f"msg_{call.number}",
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": [] if refused else [{"type": "text", "text": answer.text}],
        "stop_reason": _STOP[answer.finish],
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens.input - tokens.cached - tokens.written,
            "cache_creation_input_tokens": tokens.written,
            "cache_read_input_tokens": tokens.cached,
            "output_tokens": tokens.output,
            "service_tier": "standard",
        },
    }


def _tool_calls(call: Call, answer: Answer) -> list[tuple[str, str, dict[str, Any]]]:
    """(ID, name, arguments) of each."""
    return [
        (f"call_{call.number}_{index}", name, arguments)
        for index, (name, arguments) in enumerate(answer.tool_calls)
    ]


def _add_chat_calls(body: dict[str, Any], call: Call, answer: Answer) -> dict[str, Any]:
    if calls := _tool_calls(call, answer):
        (choice,) = body["choices"]
        choice["finish_reason"] = "tool_calls"
        choice["message"]["content"] = answer.text or None
        choice["message"]["tool_calls"] = [
            {"id": key, "type": "function",
             "function": {"name": name, "arguments": json.dumps(arguments)}}
            for key, name, arguments in calls
        ]  # fmt: skip
    return body


def _add_function_calls(body: dict[str, Any], call: Call, answer: Answer) -> dict[str, Any]:
    calls = [
        {"type": "function_call", "id": f"fc_{key}", "call_id": key, "name": name,
         "arguments": json.dumps(arguments), "status": "completed"}
        for key, name, arguments in _tool_calls(call, answer)
    ]  # fmt: skip
    said = body["output"] if answer.text or not calls else []
    return body | {"output": [*said, *calls]}


def _add_tool_uses(body: dict[str, Any], call: Call, answer: Answer) -> dict[str, Any]:
    if uses := [
        {"type": "tool_use", "id": key, "name": name, "input": arguments}
        for key, name, arguments in _tool_calls(call, answer)
    ]:
        said = body["content"] if answer.text else []
        return body | {"content": [*said, *uses], "stop_reason": "tool_use"}
    return body


def _embeddings(call: Call) -> dict[str, Any]:
    texts = call.body["input"] if isinstance(call.body["input"], list) else [call.body["input"]]
    dimensions = int(call.body.get("dimensions", DEFAULT_DIMENSIONS))
    encoded = call.body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": i, "embedding": _vector(str(text), dimensions, encoded)}
        for i, text in enumerate(texts)
    ]
    used = sum(len(str(text)) // 4 + 1 for text in texts)
    usage = {"prompt_tokens": used, "total_tokens": used}
    return {"object": "list", "data": data, "model": call.model, "usage": usage}


def _vector(text: str, dimensions: int, encoded: bool) -> list[float] | str:
    """A unit vector that depends on the text alone."""
    digest = hashlib.shake_256(text.encode()).digest(dimensions * 2)
    raw = [value - 32_767.5 for value in struct.unpack(f"<{dimensions}H", digest)]
    length = math.sqrt(sum(value * value for value in raw))
    values = [value / length for value in raw]
    if not encoded:
        return values
    return base64.b64encode(struct.pack(f"<{dimensions}f", *values)).decode()
