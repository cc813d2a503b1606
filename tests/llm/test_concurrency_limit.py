"""No more calls of a model are under way at once than there are slots."""

from __future__ import annotations

import asyncio

import pytest

from memory_api.llm.circuit_breaker import CircuitBreaker, CircuitBreakerLLM
from memory_api.llm.errors import LLMCircuitOpen, LLMRateLimited
from memory_api.llm.port import LLM, LLMReply, LLMRequest, LLMWrapper, Message
from memory_api.llm.wrappers import ConcurrencyLimitedLLM, release_slot
from tests.support.stub_provider import StubProvider, rate_limited

QUESTION = LLMRequest((Message("user", "Hello?"),), timeout=10, purpose="greet")


class Watched(LLMWrapper):
    """Knows how many calls are under way, and how many ever were."""

    now = most = 0

    async def complete(self, request: LLMRequest) -> LLMReply:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self.inner.complete(request)
        finally:
            self.now -= 1


async def test_calls_over_limit_wait(llm: LLM, stub: StubProvider) -> None:
    stub.delay = 0.05
    watched = Watched(llm)
    slotted = ConcurrencyLimitedLLM(watched, 3)
    replies = await asyncio.gather(*(slotted.complete(QUESTION) for _ in range(10)))
    assert len(replies) == len(stub.calls) == 10
    assert watched.most == 3


async def test_failed_or_cancelled_call_releases_slot(llm: LLM, stub: StubProvider) -> None:
    slotted = ConcurrencyLimitedLLM(llm, 1)
    stub.queue(rate_limited(5))
    with pytest.raises(LLMRateLimited):
        await slotted.complete(QUESTION)
    stub.delay = 5
    cancelled = asyncio.create_task(slotted.complete(QUESTION))
    while len(stub.calls) < 2:
        await asyncio.sleep(0.01)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    stub.delay = 0
    assert await slotted.complete(QUESTION)


async def test_waiting_call_that_is_cancelled_takes_no_slot(llm: LLM, stub: StubProvider) -> None:
    stub.delay = 0.2
    slotted = ConcurrencyLimitedLLM(llm, 1)
    calls = [asyncio.create_task(slotted.complete(QUESTION)) for _ in range(3)]
    await asyncio.sleep(0.05)
    calls[1].cancel()
    async with asyncio.timeout(5):
        assert await calls[0]
        assert await calls[2]
        assert await slotted.complete(QUESTION)
    assert len(stub.calls) == 3


async def test_waiting_call_is_not_sent_after_provider_failed(llm: LLM, stub: StubProvider) -> None:
    slotted = ConcurrencyLimitedLLM(CircuitBreakerLLM(llm, CircuitBreaker()), 1)
    stub.queue(rate_limited(5))
    first, second = await asyncio.gather(
        slotted.complete(QUESTION), slotted.complete(QUESTION), return_exceptions=True
    )
    assert isinstance(first, LLMRateLimited)
    assert isinstance(second, LLMCircuitOpen)
    assert len(stub.calls) == 1


class Accounting(LLMWrapper):
    """Has work to do after the answer, until `done` is set."""

    def __init__(self, inner: LLM) -> None:
        super().__init__(inner)
        self.done = asyncio.Event()

    async def complete(self, request: LLMRequest) -> LLMReply:
        reply = await self.inner.complete(request)
        release_slot()
        await self.done.wait()
        return reply


async def test_answered_call_needs_no_slot(llm: LLM, stub: StubProvider) -> None:
    accounting = Accounting(llm)
    slotted = ConcurrencyLimitedLLM(accounting, 1)
    calls = [asyncio.create_task(slotted.complete(QUESTION)) for _ in range(3)]
    async with asyncio.timeout(5):
        while len(stub.calls) < 3:
            await asyncio.sleep(0.01)
    assert not any(call.done() for call in calls)
    accounting.done.set()
    await asyncio.gather(*calls)
    watched = Watched(llm)  # a slot is released once
    accounting.inner, stub.delay = watched, 0.05
    await asyncio.gather(*(slotted.complete(QUESTION) for _ in range(4)))
    assert watched.most == 1
