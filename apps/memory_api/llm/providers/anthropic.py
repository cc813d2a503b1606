"""Anthropic's messages API with its SDK; also on Bedrock (extra: `anthropic[bedrock]`)."""

from __future__ import annotations

from typing import Any

import anthropic
from anthropic.lib.bedrock import AsyncAnthropicBedrock
from anthropic.types import Message as AnthropicMessage

from memory_api.core.outgoing import PROVIDER_CLIENT
from memory_api.llm.error_mapping import SdkErrors
from memory_api.llm.errors import LLMBadRequest, LLMServerError
from memory_api.llm.port import (
    FinishReason,
    LLMReply,
    LLMRequest,
    Message,
    TokenUsage,
)
from memory_api.llm.providers.reported_values import (
    reported_count,
    reported_items,
    reported_model,
    reported_text,
)
from memory_api.llm.providers.sdk import SdkLLM

OFFICIAL_BASE_URL = "https://api.anthropic.com"

_FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "tool_use": "tool",
}
_CACHE_CONTROL = {"type": "ephemeral"}

_SDK_ERRORS = SdkErrors(
    timeout=anthropic.APITimeoutError,
    status=anthropic.APIStatusError,
    connection=anthropic.APIConnectionError,
    base=anthropic.APIError,
    kinds_of=lambda error: (error.type, error.error_code),
)


class AnthropicLLM(SdkLLM):
    """A model of `/v1/messages`. Does not send `temperature`, because the API rejects all sampling
    parameters since version 2026-10-21.
    """

    errors, reply_name, request_id_header = _SDK_ERRORS, "a message", "request-id"

    async def list_models(self, timeout: float) -> list[str]:  # noqa: ASYNC109 - passed to the SDK
        if isinstance(self.client, AsyncAnthropicBedrock):
            raise LLMBadRequest("Bedrock does not list models.")
        return await super().list_models(timeout)

    def _create_method(self) -> Any:
        return self.client.messages.with_raw_response.create

    def _body(self, request: LLMRequest) -> dict[str, Any]:
        prefix = request.messages[: request.cache_prefix]
        last_cached = len(prefix) - 1 if prefix else None
        system: list[dict[str, Any]] = []
        messages: list[dict[str, Any]] = []
        for index, message in enumerate(request.messages):
            block = _text_block(message, is_cached=index == last_cached)
            if message.role == "system":
                system.append(block)
            else:
                messages.append({"role": message.role, "content": [block]})
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": request.max_tokens,
            "messages": messages,
        }
        if system:
            body["system"] = system
        if request.schema is not None:
            body["output_config"] = {
                "format": {"type": "json_schema", "schema": request.schema.schema}
            }
        return body

    def _reply(self, response: object, latency_ms: int, request_id: str | None) -> LLMReply:
        # The SDK does not validate: HTML arrives as a str, another JSON object without `content`.
        blocks = reported_items(response, "content")
        if not isinstance(response, AnthropicMessage) or blocks is None:
            raise LLMServerError(
                f"The provider's response is not a message: {response!s}"[:1000],
                request_id=request_id,
            )
        return LLMReply(
            text="".join(
                reported_text(block, "text")
                for block in blocks
                if getattr(block, "type", "") == "text"
            ),
            model=reported_model(response, self._model),
            provider=self.provider,
            usage=_usage(getattr(response, "usage", None)),
            finish_reason=_FINISH_REASONS.get(str(getattr(response, "stop_reason", None)), "other"),
            latency_ms=latency_ms,
            request_id=request_id,
        )


def _text_block(message: Message, *, is_cached: bool) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": message.content}
    if is_cached:
        block["cache_control"] = _CACHE_CONTROL
    return block


def _usage(usage: object) -> TokenUsage:
    """Anthropic's `input_tokens` does not include cached tokens; ours does."""
    read = reported_count(usage, "cache_read_input_tokens")
    written = reported_count(usage, "cache_creation_input_tokens")
    return TokenUsage(
        input_tokens=reported_count(usage, "input_tokens") + read + written,
        output_tokens=reported_count(usage, "output_tokens"),
        cached_input_tokens=read,
        cache_write_tokens=written,
    )


def open_anthropic(*, model: str, api_key: str | None, base_url: str | None) -> AnthropicLLM:
    """Open a model of Anthropic or of a compatible server at `base_url` (without `/v1`)."""
    if not api_key:
        raise ValueError("The provider anthropic needs an API key.")
    client = anthropic.AsyncAnthropic(
        api_key=api_key,
        base_url=base_url or OFFICIAL_BASE_URL,
        max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(**PROVIDER_CLIENT),
        open_telemetry={"traces": False, "propagation": False},  # `llm/observation.py` traces calls
    )
    return AnthropicLLM(client, model=model, provider="anthropic")


def open_bedrock(
    *,
    model: str,
    api_key: str | None,
    base_url: str | None,
    region: str | None = None,
) -> AnthropicLLM:
    """Open an Anthropic model on AWS Bedrock. Uses AWS's credential chain unless `api_key`, a
    Bedrock bearer key, is set.
    """
    client = AsyncAnthropicBedrock(
        api_key=api_key,
        base_url=base_url,
        aws_region=region,
        max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(**PROVIDER_CLIENT),
        open_telemetry={"traces": False, "propagation": False},
    )
    return AnthropicLLM(client, model=model, provider="bedrock")
