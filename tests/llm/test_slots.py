"""No more calls of a model are under way at once than there are slots."""

from __future__ import annotations

import asyncio

import pytest

from apps.memory_api.llm.errors import LLMPaused, LLMServerError
from apps.memory_api.llm.pause import Gate, Gated
from apps.memory_api.llm.port import LLM, LLMReply, LLMRequest, Message, Wrapper
from apps.memory_api.llm.slots import Slotted
from tests.stub_provider import StubProvider, server_error

QUESTION = LLMRequest((Message("user", "Hello?"),), timeout=10, purpose="greet")


class Watched(Wrapper):
    """Knows how many calls are under way, and how many ever were."""

    now = most = 0

    async def complete(self, request: LLMRequest) -> LLMReply:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self.inner.complete(request)
        finally:
            self.now -= 1


async def test_more_wait_for_their_turn(llm: LLM, stub: StubProvider) -> None:
    stub.delay = 0.05
    watched = Watched(llm)
    slotted = Slotted(watched, 3)
    replies = await asyncio.gather(*(slotted.complete(QUESTION) for _ in range(10)))
    assert len(replies) == len(stub.calls) == 10
    assert watched.most == 3


async def test_a_call_that_failed_or_was_cancelled_gives_its_slot_back(
    llm: LLM, stub: StubProvider
) -> None:
    slotted = Slotted(llm, 1)
    stub.queue(server_error())
    with pytest.raises(LLMServerError):
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


async def test_who_waited_does_not_ask_a_provider_that_failed_meanwhile(
    llm: LLM, stub: StubProvider
) -> None:
    slotted = Slotted(Gated(llm, Gate()), 1)
    stub.queue(server_error())
    first, second = await asyncio.gather(
        slotted.complete(QUESTION), slotted.complete(QUESTION), return_exceptions=True
    )
    assert isinstance(first, LLMServerError)
    assert isinstance(second, LLMPaused)
    assert len(stub.calls) == 1
