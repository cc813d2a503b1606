"""Every way a provider can behave, through the real SDKs, over a real connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from memory_api.llm.error_mapping import parse_retry_after
from memory_api.llm.errors import (
    LLMAuthenticationFailed,
    LLMBadRequest,
    LLMConnectionFailed,
    LLMError,
    LLMQuotaExceeded,
    LLMRateLimited,
    LLMRefused,
    LLMServerError,
    LLMTimeout,
)
from memory_api.llm.port import LLM, JsonSchema, LLMRequest, Message, TokenUsage
from memory_api.llm.providers.openai import OpenAILLM
from memory_api.llm.providers.openai_responses import OpenAIResponsesLLM
from memory_api.llm.registry import open_llm
from tests.support.stub_provider import (
    Behaviour,
    Reply,
    StubProvider,
    answer,
    bad_request,
    broken_body,
    hang,
    html_page,
    max_tokens,
    overloaded,
    quota,
    rate_limited,
    refusal,
    reset,
    server_error,
    unauthorized,
)
from tests.support.stub_provider.behaviours import Fail

QUESTION = LLMRequest((Message("system", "Be brief."), Message("user", "Hello?")), timeout=10)
SCHEMA = JsonSchema("thing", {"type": "object", "properties": {}, "additionalProperties": False})

# behaviour, error, worth another try, the provider's fault
FAULTS: list[tuple[Reply | Behaviour, type[LLMError], bool, bool]] = [
    (rate_limited(), LLMRateLimited, True, True),
    (quota(), LLMQuotaExceeded, False, True),
    (unauthorized(), LLMAuthenticationFailed, False, True),
    (Fail(403, "permission_error"), LLMAuthenticationFailed, False, True),
    (Fail(402, "billing_error"), LLMQuotaExceeded, False, True),
    (bad_request(), LLMBadRequest, False, False),
    (Fail(404, "not_found_error"), LLMBadRequest, False, False),
    (Fail(413, "request_too_large"), LLMBadRequest, False, False),
    (Fail(400, "content_filter"), LLMRefused, False, False),
    (Fail(408, "timeout"), LLMTimeout, True, True),
    (Fail(409, "conflict"), LLMServerError, True, True),
    (server_error(500), LLMServerError, True, True),
    (server_error(503), LLMServerError, True, True),
    (overloaded(), LLMServerError, True, True),
    (html_page(), LLMServerError, True, True),
    (broken_body(), LLMServerError, True, True),
    (Fail(200, "", raw='{"error": {"message": "no upstream"}}'), LLMServerError, True, True),
    (Fail(500, "", raw="<html>oops", content_type="text/html"), LLMServerError, True, True),
    (reset(), LLMConnectionFailed, True, True),
    (reset(halfway=True), LLMConnectionFailed, True, True),
]


async def test_reply_has_usage_and_model(llm: LLM, stub: StubProvider) -> None:
    stub.queue(answer("Good day.", input_tokens=120, output_tokens=7))
    reply = await llm.complete(QUESTION)
    assert reply.text == "Good day."
    assert reply.usage == TokenUsage(input_tokens=120, output_tokens=7)
    assert reply.finish_reason == "stop"
    assert reply.model == "some-model"
    assert reply.provider == llm.provider
    assert reply.request_id == "req_1"
    assert reply.latency_ms >= 0


async def test_request_fields(llm: LLM, stub: StubProvider) -> None:
    await llm.complete(
        LLMRequest(
            (Message("system", "One."), Message("system", "Two."), Message("user", "Three?")),
            max_tokens=99,
            temperature=0.25,
            schema=SCHEMA,
            purpose="secret purpose",
            prompt_hash="secret hash",
        )
    )
    (call,) = stub.calls
    assert call.model == "some-model"
    assert call.system == "One.\nTwo."
    assert call.user == "Three?"
    if llm.provider != "anthropic":  # whose API refuses sampling parameters
        assert call.body["temperature"] == 0.25
    assert call.max_tokens == 99
    assert call.schema == SCHEMA.schema
    assert "secret" not in str(call.body)


async def test_only_requested_options_are_sent(llm: LLM, stub: StubProvider) -> None:
    await llm.complete(QUESTION)
    (call,) = stub.calls
    if call.api == "responses":
        assert set(call.body) == {"model", "input", "max_output_tokens", "store"}
        assert call.body["store"] is False, "nothing is kept at the provider"
    else:
        assert set(call.body) <= {"model", "messages", "max_tokens", "system"}


@pytest.mark.parametrize(
    ("behaviour", "error_class", "retryable", "fault"),
    FAULTS,
    ids=lambda value: getattr(value, "kind", None) or getattr(value, "__name__", None),
)
async def test_failure_has_specific_error_and_one_attempt(
    llm: LLM,
    stub: StubProvider,
    behaviour: Reply | Behaviour,
    error_class: type[LLMError],
    retryable: bool,
    fault: bool,
) -> None:
    stub.queue(behaviour)
    with pytest.raises(error_class) as caught:
        await llm.complete(QUESTION)
    assert type(caught.value) is error_class
    assert (caught.value.retryable, caught.value.provider_fault) == (retryable, fault)
    assert len(stub.calls) == 1


async def test_status_error_has_code_and_reason(llm: LLM, stub: StubProvider) -> None:
    stub.queue(bad_request("max_tokens is too large"))
    with pytest.raises(LLMBadRequest, match=r"400: .*max_tokens is too large") as caught:
        await llm.complete(QUESTION)
    assert caught.value.provider_status == 400
    assert caught.value.request_id == "req_1"


async def test_slow_answer_is_timeout(llm: LLM, stub: StubProvider) -> None:
    stub.queue(hang())
    with pytest.raises(LLMTimeout):
        await llm.complete(LLMRequest(QUESTION.messages, timeout=0.2))


async def test_closed_port_is_connection_error() -> None:
    for provider in ("openai", "anthropic"):
        llm = open_llm(provider, model="m", api_key="k", base_url="http://127.0.0.1:9")
        assert llm is not None
        with pytest.raises(LLMConnectionFailed):
            await llm.complete(QUESTION)
        await llm.aclose()


async def test_cancelled_call_raises_cancelled(llm: LLM, stub: StubProvider) -> None:
    stub.queue(hang())
    task = asyncio.create_task(llm.complete(QUESTION))
    while not stub.calls and not task.done():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_retry_after_is_passed_on(llm: LLM, stub: StubProvider) -> None:
    stub.queue(rate_limited(7.5), rate_limited(None))
    with pytest.raises(LLMRateLimited) as caught:
        await llm.complete(QUESTION)
    assert caught.value.retry_after == 7.5
    with pytest.raises(LLMRateLimited) as caught:
        await llm.complete(QUESTION)
    assert caught.value.retry_after is None


async def test_refusal_is_reply_with_usage(llm: LLM, stub: StubProvider) -> None:
    stub.queue(refusal())
    reply = await llm.complete(QUESTION)
    assert reply.finish_reason == "refusal"
    assert reply.usage.input_tokens > 0


async def test_truncated_answer_keeps_its_text(llm: LLM, stub: StubProvider) -> None:
    stub.queue(max_tokens({"lesson": "look before you leap"}))
    reply = await llm.complete(QUESTION)
    assert reply.finish_reason == "length"
    assert reply.text.startswith('{"lesson"')


async def test_stable_prefix_is_cached_on_second_call(llm: LLM, stub: StubProvider) -> None:
    rules = "Rule: be careful with what you keep. " * 400

    def ask(question: str) -> LLMRequest:
        messages = (Message("system", rules), Message("user", question))
        return LLMRequest(messages, cache_prefix=1)

    first = (await llm.complete(ask("one?"))).usage
    second = (await llm.complete(ask("two?"))).usage
    assert first.cached_input_tokens == 0
    assert second.cached_input_tokens > 3000
    assert second.input_tokens > second.cached_input_tokens


async def test_anthropic_cache_mark_is_at_end_of_prefix(stub: StubProvider) -> None:
    llm = open_llm("anthropic", model="m", api_key="k", base_url=stub.anthropic_url)
    assert llm is not None
    messages = (Message("system", "a"), Message("user", "example"), Message("user", "data"))
    await llm.complete(LLMRequest(messages, cache_prefix=2))
    body = stub.calls[0].body
    assert "cache_control" not in body["system"][0]
    assert [("cache_control" in turn["content"][0]) for turn in body["messages"]] == [True, False]
    await llm.aclose()


async def test_openai_gets_new_parameter_names_and_cache_key(stub: StubProvider) -> None:
    compatible = open_llm("openai", model="m", base_url=stub.openai_url)
    assert isinstance(compatible, OpenAILLM)
    official = OpenAILLM(compatible.client, model="m", provider="openai")
    await official.complete(
        LLMRequest(QUESTION.messages, cache_prefix=1, prompt_hash="f" * 64, max_tokens=5)
    )
    body = stub.calls[0].body
    assert body["max_completion_tokens"] == 5
    assert body["prompt_cache_key"] == "f" * 64
    assert "max_tokens" not in body
    await official.aclose()


async def test_responses_api_gets_cache_key_and_schema(stub: StubProvider) -> None:
    """What is sent to OpenAI itself; a compatible server gets no cache key."""
    compatible = open_llm("openai-responses", model="m", api_key="k", base_url=stub.openai_url)
    assert isinstance(compatible, OpenAIResponsesLLM)
    itself = OpenAIResponsesLLM(compatible.client, model="m", provider="openai")
    request = replace(QUESTION, cache_prefix=1, prompt_hash="f" * 80, schema=SCHEMA)
    for llm in (itself, compatible):
        await llm.complete(request)
    first, second = (call.body for call in stub.calls)
    assert first["prompt_cache_key"] == "f" * 64
    assert "prompt_cache_key" not in second
    assert first["text"]["format"] | {"schema": {}} == {
        "type": "json_schema",
        "name": "thing",
        "strict": True,
        "schema": {},
    }
    await compatible.aclose()


async def test_azure_and_bedrock_use_same_protocols(stub: StubProvider) -> None:
    azure = open_llm("azure", model="my-deployment", api_key="k", base_url=stub.url)
    bedrock = open_llm(
        "bedrock", model="anthropic.m-v1:0", api_key="k", base_url=stub.url, region="eu-west-1"
    )
    assert azure is not None
    assert bedrock is not None
    stub.queue(answer("from azure"), answer("from bedrock"))
    assert (await azure.complete(QUESTION)).text == "from azure"
    assert (await bedrock.complete(QUESTION)).text == "from bedrock"
    assert [call.path for call in stub.calls] == [
        "/openai/deployments/my-deployment/chat/completions",
        "/model/anthropic.m-v1:0/invoke",
    ]
    assert (azure.provider, bedrock.provider) == ("azure", "bedrock")
    await azure.aclose()
    await bedrock.aclose()


async def test_server_without_usage_gives_none(stub: StubProvider) -> None:
    llm = open_llm("openai", model="m", base_url=stub.openai_url)
    assert llm is not None
    bare = '{"choices": [{"message": {"role": "assistant", "content": "hi"}}]}'
    stub.queue(Fail(200, "", raw=bare))
    reply = await llm.complete(QUESTION)
    assert (reply.text, reply.usage, reply.finish_reason) == ("hi", TokenUsage(), "other")
    assert reply.model == "m"
    await llm.aclose()


def test_retry_after_formats_are_parsed() -> None:
    now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    forms = {
        "1.5": 1.5,
        "Thu, 01 Jan 2026 12:00:30 GMT": 30.0,
        "Thu, 01 Jan 2026 11:00:00 GMT": 0.0,
        "soon": None,
        "-3": None,
        "inf": None,
        "nan": None,
    }
    assert {form: parse_retry_after({"retry-after": form}, now) for form in forms} == forms
    assert parse_retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert parse_retry_after({}) is None
