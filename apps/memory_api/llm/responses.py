"""OpenAI's responses API in place of chat completions (HANSEI_LLM_API=responses), over the same
SDK. Nothing is kept at the provider.
"""

from __future__ import annotations

from typing import Any

from openai.types.responses import Response

from apps.memory_api.llm.errors import LLMServerError
from apps.memory_api.llm.openai import OpenAILLM, open_openai
from apps.memory_api.llm.port import FinishReason, LLMReply, LLMRequest, Usage

_INCOMPLETE: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "refusal"}


class OpenAIResponsesLLM(OpenAILLM):
    """One model behind `/responses`."""

    def _create(self) -> Any:
        return self._client.responses.with_raw_response.create

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
        if self._dialect == "openai" and request.cache_prefix and request.prompt_hash:
            body["prompt_cache_key"] = request.prompt_hash[:64]
        return body

    def _reply(self, completion: object, latency_ms: int, request_id: str | None) -> LLMReply:
        # The SDK does not validate what came.
        output: list[Any] | None = getattr(completion, "output", None)
        failed = getattr(completion, "error", None)
        if not isinstance(completion, Response) or output is None or failed is not None:
            raise LLMServerError(f"not a response: {completion!s}"[:1000], request_id=request_id)
        contents: list[list[Any]] = [getattr(item, "content", None) or [] for item in output]
        parts: list[Any] = [part for content in contents for part in content]
        refusal = "".join(getattr(part, "refusal", None) or "" for part in parts)
        return LLMReply(
            text=refusal or "".join(getattr(part, "text", None) or "" for part in parts),
            model=getattr(completion, "model", None) or self._model,
            provider=self.provider,
            usage=_usage(getattr(completion, "usage", None)),
            finish_reason="refusal" if refusal else _finish(completion),
            latency_ms=latency_ms,
            request_id=request_id,
        )


def _finish(response: Response) -> FinishReason:
    if getattr(response, "status", None) == "completed":
        return "stop"
    reason = getattr(getattr(response, "incomplete_details", None), "reason", None)
    return _INCOMPLETE.get(str(reason), "other")


def _usage(usage: Any) -> Usage:
    details = getattr(usage, "input_tokens_details", None)
    return Usage(
        input_tokens=getattr(usage, "input_tokens", None) or 0,
        output_tokens=getattr(usage, "output_tokens", None) or 0,
        cached_input_tokens=getattr(details, "cached_tokens", None) or 0,
    )


def open_responses(*, model: str, api_key: str | None, base_url: str | None) -> OpenAIResponsesLLM:
    """As `open_openai`."""
    chat = open_openai(model=model, api_key=api_key, base_url=base_url)
    return OpenAIResponsesLLM(chat.client, model=model, dialect=chat.dialect)
