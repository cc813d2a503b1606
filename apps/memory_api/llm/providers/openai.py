"""OpenAI's chat completions API with its SDK: OpenAI, Azure and compatible servers."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion

from memory_api.core.outgoing import PROVIDER_CLIENT
from memory_api.llm.error_mapping import SdkErrors, convert_sdk_errors
from memory_api.llm.errors import LLMServerError
from memory_api.llm.port import (
    FinishReason,
    LLMReply,
    LLMRequest,
    TokenUsage,
    fingerprint_key,
)
from memory_api.llm.providers.reported_values import (
    reported_count,
    reported_items,
    reported_model,
    reported_text,
)

OFFICIAL_BASE_URL = "https://api.openai.com/v1"
Dialect = Literal["openai", "compatible", "azure"]

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


class OpenAILLM:
    """A model of `/chat/completions`.

    The dialect `compatible` uses the older name of the token limit and sends no cache key, because
    other servers reject or ignore OpenAI's later fields.
    """

    def __init__(self, client: openai.AsyncOpenAI, *, model: str, dialect: Dialect) -> None:
        self._client = client
        self._dialect: Dialect = dialect
        self._model = model

    @property
    def provider(self) -> str:
        return self._dialect

    @property
    def model(self) -> str:
        return self._model

    @property
    def endpoint(self) -> str:
        return str(self._client.base_url)

    @property
    def client(self) -> openai.AsyncOpenAI:
        return self._client

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    @property
    def key_fingerprint(self) -> str:
        """See `port.KeyedModel`."""
        return fingerprint_key(getattr(self._client, "api_key", None))

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Send one request. Raises an `LLMError` for a response that is not a completion."""
        started = time.perf_counter()
        with convert_sdk_errors(_SDK_ERRORS, request.timeout, "a completion"):
            async with asyncio.timeout(request.timeout):
                create = self._create_method()
                raw: Any = await create(**self._body(request), timeout=request.timeout)
                completion: object = raw.parse()
        latency = round((time.perf_counter() - started) * 1000)
        return self._reply(completion, latency, raw.headers.get("x-request-id"))

    async def list_models(self, timeout: float) -> list[str]:  # noqa: ASYNC109 - passed to the SDK
        """See `port.ModelLister`."""
        with convert_sdk_errors(_SDK_ERRORS, timeout, "a list of models"):
            async with asyncio.timeout(timeout):
                page: Any = await self._client.models.list(timeout=timeout)
        models: list[Any] = getattr(page, "data", None) or []
        return [str(getattr(model, "id", "")) for model in models]

    async def aclose(self) -> None:
        await self._client.close()

    def _create_method(self) -> Any:
        return self._client.chat.completions.with_raw_response.create

    def _body(self, request: LLMRequest) -> dict[str, Any]:
        limit = "max_tokens" if self._dialect == "compatible" else "max_completion_tokens"
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
        if self._dialect == "openai" and request.cache_prefix and request.prompt_hash:
            # OpenAI caches automatically. The key routes equal prefixes to the same machine.
            body["prompt_cache_key"] = request.prompt_hash[:64]
        return body

    def _reply(self, completion: object, latency_ms: int, request_id: str | None) -> LLMReply:
        # The SDK does not validate: HTML arrives as a str, and an error with status 200 has no
        # choices.
        choices = reported_items(completion, "choices")
        if not isinstance(completion, ChatCompletion) or not choices:
            raise LLMServerError(
                f"The provider's response is not a completion: {completion!s}"[:1000],
                request_id=request_id,
            )
        message = getattr(choices[0], "message", None)
        refusal = reported_text(message, "refusal")
        finish = _FINISH_REASONS.get(str(getattr(choices[0], "finish_reason", None)), "other")
        return LLMReply(
            text=refusal or reported_text(message, "content"),
            model=reported_model(completion, self._model),
            provider=self.provider,
            usage=_usage(getattr(completion, "usage", None)),
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
    return OpenAILLM(client, model=model, dialect="openai" if is_official else "compatible")


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
    return OpenAILLM(client, model=model, dialect="azure")
