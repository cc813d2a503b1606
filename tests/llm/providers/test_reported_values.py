"""Fields of a provider's response that have another type or size than promised, through the real
SDKs. They are stored, priced and added to budgets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from memory_api.llm.errors import LLMServerError
from memory_api.llm.port import LLM, LLMRequest, Message, TokenUsage
from memory_api.llm.providers.reported_values import MAX_TOKEN_COUNT
from tests.support.stub_provider import Behaviour, Call, StubProvider, answer
from tests.support.stub_provider.behaviours import Fail
from tests.support.stub_provider.shapes import Tokens, body_of

QUESTION = LLMRequest((Message("user", "Hello?"),), timeout=10)
TEXT = "Good day."


def changed(change: Callable[[dict[str, Any]], object]) -> Behaviour:
    """A response of the call's protocol after a change."""

    def reply(call: Call) -> Fail:
        body = body_of(call, answer(TEXT), Tokens(1, 1))
        change(body)
        return Fail(200, "", raw=json.dumps(body))

    return reply


@pytest.mark.parametrize(
    ("reported", "count"),
    [(-5, 0), (10**30, MAX_TOKEN_COUNT), (True, 0), ("many", 0), ([1], 0), (7.9, 7)],
    ids=str,
)
async def test_token_counts_are_limited(
    llm: LLM, stub: StubProvider, reported: Any, count: int
) -> None:
    names = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    stub.queue(changed(lambda body: body.update(usage=dict.fromkeys(names, reported))))
    reply = await llm.complete(QUESTION)
    assert (reply.text, reply.usage) == (TEXT, TokenUsage(count, count))


@pytest.mark.parametrize(
    ("reported", "name"),
    [("a\0b\ud800", "a\ufffdb\ufffd"), ({"a": 1}, "some-model"), ("m" * 1_000_000, "m" * 200)],
    ids=["NUL", "object", "long"],
)
async def test_name_of_the_model_can_be_stored(
    llm: LLM, stub: StubProvider, reported: Any, name: str
) -> None:
    stub.queue(changed(lambda body: body.update(model=reported)))
    assert (await llm.complete(QUESTION)).model == name


@pytest.mark.parametrize("text", [5, {"a": 1}, [{"type": "text", "text": TEXT}]], ids=str)
async def test_text_of_another_type_is_no_completion(
    llm: LLM, stub: StubProvider, text: Any
) -> None:
    def reply(call: Call) -> Fail:
        body = json.dumps(body_of(call, answer(TEXT), Tokens(1, 1)))
        return Fail(200, "", raw=body.replace(json.dumps(TEXT), json.dumps(text)))

    stub.queue(reply)
    with pytest.raises(LLMServerError):
        await llm.complete(QUESTION)


@pytest.mark.parametrize("items", [5, "x", {"a": 1}], ids=str)
async def test_items_that_are_no_list_are_no_completion(
    llm: LLM, stub: StubProvider, items: Any
) -> None:
    def replace_items(body: dict[str, Any]) -> None:
        (name,) = {"choices", "output", "content"} & body.keys()
        body[name] = items

    stub.queue(changed(replace_items))
    with pytest.raises(LLMServerError):
        await llm.complete(QUESTION)
