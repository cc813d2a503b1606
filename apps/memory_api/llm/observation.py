"""Observes model calls: metrics, and spans with OpenTelemetry's GenAI conventions.

Prompts and answers are not recorded. The label `model` is the configured name, because a server may
report any name in its replies.
"""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue

from memory_api.core.metrics import LLM_CALLS, LLM_DURATION, count_llm_reply
from memory_api.core.tracing import is_tracing, mark_failed, span
from memory_api.llm.errors import LLMError
from memory_api.llm.port import LLMReply, LLMRequest, LLMWrapper
from memory_api.llm.wrappers import price_usd

PROVIDER_NAMES = {
    "openai": "openai",
    "compatible": "openai",  # the API that such a server imitates
    "azure": "azure.ai.openai",
    "anthropic": "anthropic",
    "bedrock": "aws.bedrock",
}
"""Our provider → `gen_ai.provider.name`."""


class ObservedLLM(LLMWrapper):
    """Counts and traces every attempt. Wraps the provider directly."""

    async def complete(self, request: LLMRequest) -> LLMReply:
        attributes = self._attributes(request) if is_tracing() else {}
        with span(f"chat {self.model}", SpanKind.CLIENT, attributes=attributes) as active:
            reply = await self._call(request, active)
            self._report(request, reply, active)
            return reply

    async def _call(self, request: LLMRequest, active: Span) -> LLMReply:
        started, result = time.perf_counter(), "ok"
        try:
            return await self.inner.complete(request)
        except LLMError as error:
            result = error.code
            mark_failed(active, result)
            raise
        except asyncio.CancelledError:
            result = "cancelled"
            raise
        except Exception:
            result = "internal_error"
            raise
        finally:
            LLM_CALLS.labels(self.provider, self.model, request.purpose, result).inc()
            seconds = time.perf_counter() - started
            LLM_DURATION.labels(self.provider, self.model).observe(seconds)

    def _report(self, request: LLMRequest, reply: LLMReply, active: Span) -> None:
        usage = reply.usage
        usd = price_usd(usage, provider=self.provider, model=reply.model, endpoint=self.endpoint)
        count_llm_reply(
            self.provider,
            self.model,
            request.purpose,
            tokens={
                "input": usage.input_tokens,
                "cached": usage.cached_input_tokens,
                "output": usage.output_tokens,
            },
            usd=usd,
        )
        active.set_attribute("gen_ai.response.model", reply.model)
        active.set_attribute("gen_ai.response.finish_reasons", [reply.finish_reason])
        active.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
        active.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
        active.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_input_tokens)
        if reply.request_id is not None:
            active.set_attribute("gen_ai.response.id", reply.request_id)

    def _attributes(self, request: LLMRequest) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER_NAMES.get(self.provider, self.provider),
            "gen_ai.request.model": self.model,
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.output.type": "text" if request.schema is None else "json",
            "hansei.purpose": request.purpose,
        }
        if request.temperature is not None:
            attributes["gen_ai.request.temperature"] = request.temperature
        server = urlsplit(self.endpoint)
        if server.hostname:
            attributes["server.address"] = server.hostname
            attributes["server.port"] = server.port or (443 if server.scheme == "https" else 80)
        return attributes
