"""What the stub can do: answer, fail, hang, hang up. A behaviour is a function of the call, or one
fixed reply."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.stub_provider.call import Call


@dataclass(frozen=True)
class Answer:
    """A model's answer. `finish`: stop, length (cut by max_tokens) or refusal. Token counts follow
    from the texts when None. `tool_calls` are (name, arguments). Their IDs have the number of the
    request and their index: `call_1_0`."""

    text: str
    finish: Literal["stop", "length", "refusal"] = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None
    tool_calls: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass(frozen=True)
class Fail:
    """An HTTP error. `kind` is the provider's word for it (OpenAI's `code` and `type`, Anthropic's
    `type`); `raw` replaces the whole body."""

    status: int
    kind: str
    message: str = "scripted"
    headers: dict[str, str] = field(default_factory=dict)
    raw: str | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class Hang:
    """No answer, until the server stops or `seconds` have passed (then the connection is
    closed)."""

    seconds: float = 3600


@dataclass(frozen=True)
class Reset:
    """TCP reset: before the answer, or in the middle of it."""

    halfway: bool = False


Reply = Answer | Fail | Hang | Reset
Behaviour = Callable[[Call], Reply]


def answer(text: str | dict[str, Any] | list[Any], **more: Any) -> Answer:
    """`text`, or JSON written out."""
    return Answer(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False), **more)


def rate_limited(retry_after: float | str | None = 1) -> Fail:
    headers = {} if retry_after is None else {"retry-after": f"{retry_after}"}
    return Fail(429, "rate_limit_error", "slow down", headers)


def quota() -> Behaviour:
    """The account is out of money, as each vendor says it."""

    def reply(call: Call) -> Fail:
        if call.api == "messages":
            return Fail(400, "invalid_request_error", "Your credit balance is too low.")
        return Fail(429, "insufficient_quota", "You exceeded your current quota.")

    return reply


def unauthorized() -> Fail:
    return Fail(401, "authentication_error", "invalid key")


def bad_request(message: str = "unknown parameter") -> Fail:
    return Fail(400, "invalid_request_error", message)


def server_error(status: int = 500) -> Fail:
    return Fail(status, "api_error", "internal error")


def overloaded() -> Fail:
    return Fail(529, "overloaded_error", "overloaded")


def html_page() -> Fail:
    """A proxy's page with status 200."""
    return Fail(200, "", raw="<html><body>Sign in</body></html>", content_type="text/html")


def broken_body() -> Fail:
    """Status 200 and JSON that stops in the middle."""
    return Fail(200, "", raw='{"id": "x", "choices": [{"mess')


def hang(seconds: float = 3600) -> Hang:
    return Hang(seconds)


def reset(*, halfway: bool = False) -> Reset:
    return Reset(halfway)


def truncated(value: dict[str, Any]) -> Answer:
    """JSON that stops in the middle although the model says it was done."""
    text = json.dumps(value, ensure_ascii=False)
    return Answer(text[: max(1, len(text) * 2 // 3)])


def max_tokens(value: dict[str, Any]) -> Answer:
    """JSON cut by the token limit."""
    text = json.dumps(value, ensure_ascii=False)
    return Answer(text[: max(1, len(text) * 2 // 3)], finish="length")


def fenced(value: dict[str, Any]) -> Answer:
    return Answer(f"```json\n{json.dumps(value, ensure_ascii=False, indent=2)}\n```")


def prose(value: dict[str, Any]) -> Answer:
    body = json.dumps(value, ensure_ascii=False)
    return Answer(f"Of course. This is what I found:\n\n{body}\n\nTell me if you need more.")


def wrong_shape() -> Answer:
    return Answer('{"unexpected": ["shape"]}')


def refusal(text: str = "I cannot help with that.") -> Answer:
    return Answer(text, finish="refusal")


_ORDER = re.compile(r"(?:answer|reply|respond) (?:only )?with(?: exactly)?:\s*(.+)", re.IGNORECASE)


def obey(call: Call) -> Answer:
    """A gullible model: does what the last `answer with: …` anywhere in its prompt says, wherever
    that came from."""
    orders = _ORDER.findall(call.text)
    return Answer(orders[-1].strip()) if orders else by_schema(call)


def by_schema(call: Call) -> Answer:
    """A minimal instance of the asked schema, "ok" when none was asked."""
    if call.schema is None:
        return Answer("ok")
    return Answer(json.dumps(_instance(call.schema, call.schema)))


_SIMPLE: dict[str, Any] = {
    "string": "text",
    "number": 0.5,
    "integer": 1,
    "boolean": True,
    "null": None,
    "array": [],
}


def _instance(schema: dict[str, Any], root: dict[str, Any]) -> Any:
    match schema:
        case {"$ref": str(ref)}:
            return _instance(root["$defs"][ref.rsplit("/", 1)[-1]], root)
        case {"const": value}:
            return value
        case {"enum": [first, *_]}:
            return first
        case {"anyOf": [first, *_]}:
            return _instance(first, root)
        case {"properties": dict(properties)}:
            return {name: _instance(part, root) for name, part in properties.items()}
        case {"type": str(kind)}:
            return _SIMPLE.get(kind, {})
        case _:
            return {}


_SAMPLE: dict[str, Any] = {"text": "a lesson", "score": 0.5, "tags": ["one", "two"]}

BY_NAME: dict[str, Reply | Behaviour] = {
    "stub-429": rate_limited(),
    "stub-quota": quota(),
    "stub-401": unauthorized(),
    "stub-400": bad_request(),
    "stub-500": server_error(),
    "stub-529": overloaded(),
    "stub-html": html_page(),
    "stub-broken": broken_body(),
    "stub-hang": hang(),
    "stub-reset": reset(),
    "stub-truncated": truncated(_SAMPLE),
    "stub-max-tokens": max_tokens(_SAMPLE),
    "stub-fenced": fenced(_SAMPLE),
    "stub-prose": prose(_SAMPLE),
    "stub-wrong-shape": wrong_shape(),
    "stub-refusal": refusal(),
    "stub-obey": obey,
}
