"""Wrappers of models: fallback, retry, concurrency limit, usage meter and prices."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Self

import genai_prices

from memory_api.core.telemetry import get_logger
from memory_api.llm.deadline import remaining_seconds
from memory_api.llm.errors import LLMBadRequest, LLMError
from memory_api.llm.port import LLM, LLMReply, LLMRequest, LLMWrapper, TokenUsage

log = get_logger(__name__)


class FallbackLLM(LLMWrapper):
    """Calls the next model if a provider fails or a model cannot handle the request. Other errors,
    such as a refusal, are final. Raises the last model's error if all fail and logs the others.
    """

    def __init__(self, llms: Sequence[LLM]) -> None:
        if not llms:
            raise ValueError("`llms` must have at least one model.")
        super().__init__(llms[0])
        self._llms = tuple(llms)

    async def complete(self, request: LLMRequest) -> LLMReply:
        *first, last = self._llms
        for llm in first:
            try:
                return await llm.complete(request)
            except LLMError as error:
                if not (error.provider_fault or isinstance(error, LLMBadRequest)):
                    raise
                log.warning(
                    "llm_fallback_used", code=error.code, provider=llm.provider, model=llm.model
                )
        return await last.complete(request)

    async def aclose(self) -> None:
        for llm in self._llms:
            await llm.aclose()


FOREGROUND_ATTEMPTS = 3
WORKER_ATTEMPTS = 1
BASE_DELAY_SECONDS = 2.0
MAX_DELAY_SECONDS = 30.0


class RetryingLLM(LLMWrapper):
    """Retries retryable errors, with at most `attempts` calls.

    The delay is random, up to 2 s, 4 s, 8 s… (full jitter), at most `max_delay` seconds, and at
    least what the provider asked for. Without a deadline, a provider that asks for more than
    `max_delay` is not called again. With one, neither is a provider that asks for more time than
    is left.
    """

    def __init__(
        self,
        inner: LLM,
        *,
        attempts: int = FOREGROUND_ATTEMPTS,
        base_delay: float = BASE_DELAY_SECONDS,
        max_delay: float = MAX_DELAY_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(inner)
        if attempts < 1:
            raise ValueError("`attempts` must be at least 1.")
        self._attempts = attempts
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._sleep = sleep
        self._uniform = uniform

    async def complete(self, request: LLMRequest) -> LLMReply:
        failure_count = 0
        while True:
            try:
                return await self.inner.complete(request)
            except LLMError as error:
                failure_count += 1
                if not error.retryable or failure_count >= self._attempts:
                    raise
                delay = self._delay(failure_count, error.retry_after)
                remaining = remaining_seconds()
                if delay > (self._max_delay if remaining is None else remaining):
                    raise
                log.warning(
                    "llm_retry_scheduled",
                    code=error.code,
                    attempt=failure_count,
                    delay=delay,
                    purpose=request.purpose,
                )
            await self._sleep(delay)

    def _delay(self, failure_count: int, retry_after: float | None) -> float:
        jittered = self._uniform(0, self._base_delay * 2 ** (failure_count - 1))
        return max(min(self._max_delay, jittered), retry_after or 0)


def with_retries(llm: LLM, retry: Callable[[LLM], LLM] = RetryingLLM) -> LLM:
    """The model, wrapped by `retry` unless it has retries already."""
    innermost = llm
    while isinstance(innermost, LLMWrapper):
        if isinstance(innermost, RetryingLLM | FallbackLLM):
            return llm
        innermost = innermost.inner
    return retry(llm)


class _Slot:
    """A place among the concurrent calls of a process, until it is released."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._is_released = False

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._slots.release()


_slot: ContextVar[_Slot | None] = ContextVar("llm_slot", default=None)


def release_slot() -> None:
    """Let the next call start, because the provider has answered this one. What is left to do, such
    as its accounting, needs no slot. Without a limit, it does nothing.
    """
    slot = _slot.get()
    if slot is not None:
        slot.release()


class ConcurrencyLimitedLLM(LLMWrapper):
    """Limits the concurrent calls of a process. Further calls wait in order. Only the deadline of a
    request includes this waiting time. A call holds its slot until `release_slot`, at most until it
    ends.
    """

    def __init__(self, inner: LLM, max_concurrent_calls: int) -> None:
        super().__init__(inner)
        self._slots = asyncio.Semaphore(max_concurrent_calls)

    async def complete(self, request: LLMRequest) -> LLMReply:
        await self._slots.acquire()
        slot = _Slot(self._slots)
        token = _slot.set(slot)
        try:
            return await self.inner.complete(request)
        finally:
            slot.release()
            _slot.reset(token)


_PROVIDER_IDS = {
    "openai": "openai",
    "azure": "azure",
    "anthropic": "anthropic",
    "bedrock": "aws",
}


def price_usd(usage: TokenUsage, *, provider: str, model: str, endpoint: str) -> Decimal | None:
    """The price in US dollars; None if the table does not have the model at this provider.

    A compatible server is looked up by its URL and not only by the model name, because an open
    model on an own server costs nothing.
    """
    priced_usage = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        if provider in _PROVIDER_IDS:
            price = genai_prices.calc_price(
                priced_usage, model, provider_id=_PROVIDER_IDS[provider]
            )
        else:
            price = genai_prices.calc_price(priced_usage, model, provider_api_url=endpoint)
    except LookupError:
        return None
    return price.total_price


class MeteredLLM(LLMWrapper):
    """Adds up the usage of all its calls."""

    def __init__(self, inner: LLM) -> None:
        super().__init__(inner)
        self._replies: list[LLMReply] = []

    @classmethod
    def of(cls, llm: LLM) -> Self:
        """The model itself if it adds up its usage already."""
        return llm if isinstance(llm, cls) else cls(llm)

    async def complete(self, request: LLMRequest) -> LLMReply:
        reply = await self.inner.complete(request)
        self._replies.append(reply)
        return reply

    def usage(self) -> dict[str, Any] | None:
        """`{provider, model, calls, input_tokens, output_tokens, cached_tokens, usd}`, or None
        without a call. `usd` is None if a price is unknown.
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
            "usd": self._total_price_usd(),
        }

    def _total_price_usd(self) -> float | None:
        prices = [
            price_usd(r.usage, provider=r.provider, model=r.model, endpoint=self.endpoint)
            for r in self._replies
        ]
        known_prices = [price for price in prices if price is not None]
        return float(sum(known_prices)) if len(known_prices) == len(prices) else None
