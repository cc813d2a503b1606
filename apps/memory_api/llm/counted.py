"""What a piece of thinking used of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.memory_api.llm.port import LLM, LLMReply, LLMRequest, Wrapper
from apps.memory_api.llm.prices import price


class Counted(Wrapper):
    """Adds up what the replies to one question used, re-asking included."""

    def __init__(self, inner: LLM) -> None:
        super().__init__(inner)
        self._replies: list[LLMReply] = []

    async def complete(self, request: LLMRequest) -> LLMReply:
        reply = await self.inner.complete(request)
        self._replies.append(reply)
        return reply

    def usage(self) -> dict[str, Any] | None:
        """`{provider, model, calls, input_tokens, output_tokens, cached_tokens, usd}`; usd is None
        when a price is unknown.
        """
        if not self._replies:
            return None
        last = self._replies[-1]
        return {
            "provider": last.provider,
            "model": last.model,
            "calls": len(self._replies),
            "input_tokens": sum(r.usage.input_tokens for r in self._replies),
            "output_tokens": sum(r.usage.output_tokens for r in self._replies),
            "cached_tokens": sum(r.usage.cached_input_tokens for r in self._replies),
            "usd": self._usd(self._replies),
        }

    def _usd(self, replies: Sequence[LLMReply]) -> float | None:
        prices = [
            price(r.usage, provider=r.provider, model=r.model, endpoint=self.endpoint)
            for r in replies
        ]
        known = [one for one in prices if one is not None]
        return float(sum(known)) if len(known) == len(prices) else None
