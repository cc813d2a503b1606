"""OpenAI's chat completions API with its SDK: OpenAI, Azure and compatible servers."""

from __future__ import annotations

from typing import Any

import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion

from memory_api.core.outgoing import PROVIDER_CLIENT
from memory_api.llm.error_mapping import SdkErrors
from memory_api.llm.errors import LLMServerError
from memory_api.llm.port import (
    FinishReason,
    LLMReply,
    LLMRequest,
    TokenUsage,
)
from memory_api.llm.providers.reported_values import (
    reported_count,
    reported_items,
    reported_model,
    reported_text,
)
from memory_api.llm.providers.sdk import SdkLLM

OFFICIAL_BASE_URL = "https://api.openai.com/v1"

_FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "content_filter": "refusal",
    "tool_calls": "tool",
    "function_call": "tool",
}

_SDK_ERRORS = SdkErrors(
    timeout=openai.APITimeoutError,
    status=openai.APIStatusError,
    connection=openai.APIConnectionError,
    base=openai.APIError,
    kinds_of=lambda error: (error.code, error.type),
)


class OpenAILLM(SdkLLM):
    """A model of `/chat/completions`.

    The provider `compatible` gets the older name of the token limit and no cache key, because
    other servers reject or ignore OpenAI's later fields.
    """

    errors, reply_name, request_id_header = _SDK_ERRORS, "a completion", "x-request-id"

    def _create_method(self) -> Any:
        return self.client.chat.completions.with_raw_response.create

    def _body(self, request: LLMRequest) -> dict[str, Any]:
        limit = "max_tokens" if self._provider == "compatible" else "max_completion_tokens"
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            limit: request.max_tokens,
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": request.schema.name,
                    "schema": request.schema.schema,
                    "strict": True,
                },
            }
        if self._provider == "openai" and request.cache_prefix and request.prompt_hash:
            # OpenAI caches automatically. The key routes equal prefixes to the same machine.
            body["prompt_cache_key"] = request.prompt_hash[:64]
        return body

    def _reply(self, response: object, latency_ms: int, request_id: str | None) -> LLMReply:
        # The SDK does not validate: HTML arrives as a str, and an error with status 200 has no
        # choices.
        choices = reported_items(response, "choices")
        if not isinstance(response, ChatCompletion) or not choices:
            raise LLMServerError(
                f"The provider's response is not a completion: {response!s}"[:1000],
                request_id=request_id,
            )
        message = getattr(choices[0], "message", None)
        refusal = reported_text(message, "refusal")
        finish = _FINISH_REASONS.get(str(getattr(choices[0], "finish_reason", None)), "other")
        return LLMReply(
            text=refusal or reported_text(message, "content"),
            model=reported_model(response, self._model),
            provider=self.provider,
            usage=_usage(getattr(response, "usage", None)),
            finish_reason="refusal" if refusal else finish,
            latency_ms=latency_ms,
            request_id=request_id,
        )


def _usage(usage: CompletionUsage | None) -> TokenUsage:
    """Counts that the server omits are 0."""
    details: Any = getattr(usage, "prompt_tokens_details", None)
    return TokenUsage(
        input_tokens=reported_count(usage, "prompt_tokens"),
        output_tokens=reported_count(usage, "completion_tokens"),
        cached_input_tokens=reported_count(details, "cached_tokens"),
        cache_write_tokens=reported_count(details, "cache_write_tokens"),
    )


def open_openai(*, model: str, api_key: str | None, base_url: str | None) -> OpenAILLM:
    """Open a model of OpenAI or of a compatible server at `base_url` (with its `/v1`). A compatible
    server may need no key.
    """
    is_official = base_url is None or base_url.startswith(OFFICIAL_BASE_URL)
    if is_official and not api_key:
        raise ValueError("The provider openai needs an API key.")
    client = openai.AsyncOpenAI(
        api_key=api_key or "none",
        base_url=base_url or OFFICIAL_BASE_URL,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(**PROVIDER_CLIENT),
    )
    return OpenAILLM(client, model=model, provider="openai" if is_official else "compatible")


def open_azure(
    *, model: str, api_key: str | None, base_url: str | None, api_version: str = "2024-10-21"
) -> OpenAILLM:
    """Open an Azure OpenAI deployment. `model` is the deployment's name, `base_url` the endpoint of
    the resource.
    """
    if not base_url or not api_key:
        raise ValueError("The provider azure needs an API key and the endpoint of the resource.")
    client = openai.AsyncAzureOpenAI(
        api_key=api_key,
        azure_endpoint=base_url,
        api_version=api_version,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(**PROVIDER_CLIENT),
    )
    return OpenAILLM(client, model=model, provider="azure")
