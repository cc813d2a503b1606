"""OpenAI's responses API (HANSEI_LLM_API=responses). Responses are not stored at the provider."""

from __future__ import annotations

from typing import Any

from openai.types.responses import Response

from memory_api.llm.errors import LLMServerError
from memory_api.llm.port import FinishReason, LLMReply, LLMRequest, TokenUsage
from memory_api.llm.providers.openai import OpenAILLM, open_openai
from memory_api.llm.providers.reported_values import (
    reported_count,
    reported_items,
    reported_model,
    reported_text,
)

_INCOMPLETE: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "refusal"}


class OpenAIResponsesLLM(OpenAILLM):
    """A model of `/responses`."""

    def _create_method(self) -> Any:
        return self.client.responses.with_raw_response.create

    def _body(self, request: LLMRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "input": [{"role": m.role, "content": m.content} for m in request.messages],
            "max_output_tokens": request.max_tokens,
            "store": False,
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.schema is not None:
            schema = {"name": request.schema.name, "schema": request.schema.schema}
            body["text"] = {"format": {"type": "json_schema", "strict": True, **schema}}
        if self._provider == "openai" and request.cache_prefix and request.prompt_hash:
            body["prompt_cache_key"] = request.prompt_hash[:64]
        return body

    def _reply(self, response: object, latency_ms: int, request_id: str | None) -> LLMReply:
        # The SDK does not validate the response.
        output = reported_items(response, "output")
        failed = getattr(response, "error", None)
        if not isinstance(response, Response) or output is None or failed is not None:
            raise LLMServerError(
                f"The provider's answer is not a response object: {response!s}"[:1000],
                request_id=request_id,
            )
        parts = [part for item in output for part in reported_items(item, "content") or ()]
        refusal = "".join(reported_text(part, "refusal") for part in parts)
        return LLMReply(
            text=refusal or "".join(reported_text(part, "text") for part in parts),
            model=reported_model(response, self._model),
            provider=self.provider,
            usage=_usage(getattr(response, "usage", None)),
            finish_reason="refusal" if refusal else _finish_reason(response),
            latency_ms=latency_ms,
            request_id=request_id,
        )


def _finish_reason(response: Response) -> FinishReason:
    if getattr(response, "status", None) == "completed":
        return "stop"
    reason = getattr(getattr(response, "incomplete_details", None), "reason", None)
    return _INCOMPLETE.get(str(reason), "other")


def _usage(usage: Any) -> TokenUsage:
    details = getattr(usage, "input_tokens_details", None)
    return TokenUsage(
        input_tokens=reported_count(usage, "input_tokens"),
        output_tokens=reported_count(usage, "output_tokens"),
        cached_input_tokens=reported_count(details, "cached_tokens"),
    )


def open_responses(*, model: str, api_key: str | None, base_url: str | None) -> OpenAIResponsesLLM:
    """Open a model with the same arguments as `open_openai`."""
    chat = open_openai(model=model, api_key=api_key, base_url=base_url)
    return OpenAIResponsesLLM(chat.client, model=model, provider=chat.provider)
