"""Retry, budget, ledger and fallback, over a real provider that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from apps.memory_api.llm.budget import Budgeted, Estimate, estimate
from apps.memory_api.llm.errors import (
    LLMAuth,
    LLMConnection,
    LLMError,
    LLMRateLimited,
    LLMRefused,
    LLMServerError,
    LLMTimeout,
)
from apps.memory_api.llm.fallback import Fallback
from apps.memory_api.llm.ledger import MemoryLedger, Recorded
from apps.memory_api.llm.port import LLM, LLMRequest, Message, Usage
from apps.memory_api.llm.prices import price
from apps.memory_api.llm.registry import compose, open_llm
from apps.memory_api.llm.retry import Retry
from tests.stub_provider import (
    StubProvider,
    answer,
    bad_request,
    hang,
    quota,
    rate_limited,
    refusal,
    reset,
    server_error,
    unauthorized,
)
from tests.stub_provider.behaviours import Fail

QUESTION = LLMRequest((Message("user", "Hello?"),), timeout=10, purpose="greet", prompt_hash="abc")


class Broke(Exception):
    """The budget is spent."""


@dataclass
class Purse:
    """A budget that keeps its books in memory."""

    limit: Decimal = Decimal(10)
    open: dict[UUID, Estimate] = field(default_factory=dict)
    settled: list[tuple[Usage, Decimal | None]] = field(default_factory=list)

    async def reserve(self, estimate: Estimate) -> UUID:
        if (estimate.usd or 0) > self.limit:
            raise Broke
        key = uuid4()
        self.open[key] = estimate
        return key

    async def settle(self, reservation: UUID, usage: Usage, usd: Decimal | None) -> None:
        del self.open[reservation]
        self.settled.append((usage, usd))


@pytest.fixture
async def priced(stub: StubProvider) -> AsyncIterator[LLM]:
    """A model whose price is known."""
    llm = open_llm("anthropic", model="claude-sonnet-4-6", api_key="k", base_url=stub.anthropic_url)
    assert llm is not None
    yield llm
    await llm.aclose()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def patient(waits: list[float]) -> Callable[..., Retry]:
    """A Retry that writes down how long it would wait, and always draws the longest."""

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return partial(Retry, sleep=sleep, uniform=lambda low, high: high)


async def test_what_may_pass_is_tried_three_times(
    llm: LLM, stub: StubProvider, patient: Callable[..., Retry], waits: list[float]
) -> None:
    stub.queue(server_error(), reset(), answer("at last"))
    assert (await patient(llm).complete(QUESTION)).text == "at last"
    assert waits == [2.0, 4.0]


async def test_after_the_last_try_the_error_is_raised(
    llm: LLM, stub: StubProvider, patient: Callable[..., Retry], waits: list[float]
) -> None:
    stub.queue(server_error(500), server_error(500), server_error(503), answer("too late"))
    with pytest.raises(LLMServerError, match="503"):
        await patient(llm).complete(QUESTION)
    assert len(stub.calls) == 3
    assert len(waits) == 2


async def test_a_worker_tries_once(
    llm: LLM, stub: StubProvider, patient: Callable[..., Retry], waits: list[float]
) -> None:
    stub.queue(server_error())
    with pytest.raises(LLMServerError):
        await patient(llm, attempts=1).complete(QUESTION)
    assert len(stub.calls) == 1
    assert waits == []


@pytest.mark.parametrize(
    "final", [unauthorized(), bad_request(), quota(), Fail(400, "content_filter")]
)
async def test_what_will_not_pass_is_not_tried_again(
    llm: LLM, stub: StubProvider, patient: Callable[..., Retry], final: Fail
) -> None:
    stub.queue(final, answer("never asked"))
    with pytest.raises(LLMError):
        await patient(llm).complete(QUESTION)
    assert len(stub.calls) == 1


async def test_the_providers_wish_to_wait_is_honoured_up_to_a_cap(
    llm: LLM, stub: StubProvider, patient: Callable[..., Retry], waits: list[float]
) -> None:
    stub.queue(rate_limited(9), rate_limited(3600), answer("ok"))
    await patient(llm).complete(QUESTION)
    assert waits == [9.0, 30.0]


async def test_the_wait_is_drawn_from_zero_to_the_step(llm: LLM, stub: StubProvider) -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    async def sleep(seconds: float) -> None:
        assert seconds == 0

    stub.queue(*[server_error()] * 3)
    with pytest.raises(LLMServerError):
        await Retry(llm, sleep=sleep, uniform=uniform).complete(QUESTION)
    assert drawn == [(0, 2.0), (0, 4.0)]


def test_no_attempt_at_all_is_a_mistake(llm: LLM) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Retry(llm, attempts=0)


async def test_the_ledger_holds_every_attempt(
    priced: LLM, stub: StubProvider, patient: Callable[..., Retry]
) -> None:
    ledger = MemoryLedger()
    stub.queue(rate_limited(), answer("hi", input_tokens=1000, output_tokens=100))
    await compose([priced], ledger=ledger, retry=patient).complete(QUESTION)
    failed, good = ledger.attempts
    assert (failed.status, failed.error, failed.usage, failed.usd) == (
        "error",
        "llm_rate_limited",
        None,
        None,
    )
    assert "slow down" in (failed.detail or "")
    assert (good.status, good.error, good.finish_reason) == ("ok", None, "stop")
    assert good.usage == Usage(input_tokens=1000, output_tokens=100)
    assert good.usd == Decimal("0.0045")  # 3 and 15 dollars a million
    assert ledger.usd == good.usd
    assert {a.purpose for a in ledger.attempts} == {"greet"}
    assert {a.prompt_hash for a in ledger.attempts} == {"abc"}
    assert [a.request_id for a in ledger.attempts] == ["req_1", "req_2"]


async def test_a_refusal_is_in_the_ledger_with_its_tokens(priced: LLM, stub: StubProvider) -> None:
    ledger = MemoryLedger()
    stub.queue(refusal())
    await Recorded(priced, ledger).complete(QUESTION)
    assert ledger.attempts[0].finish_reason == "refusal"
    assert ledger.attempts[0].usage


async def test_a_cancelled_call_is_in_the_books(priced: LLM, stub: StubProvider) -> None:
    ledger, purse = MemoryLedger(), Purse()
    stub.queue(hang())
    chain = compose([priced], ledger=ledger, budget=purse)
    task = asyncio.create_task(chain.complete(QUESTION))
    while not stub.calls and not task.done():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.attempts[0].error == "cancelled"
    assert purse.open == {}
    assert purse.settled[0][0] == Usage(input_tokens=estimate(QUESTION).input_tokens)


async def test_each_attempt_is_reserved_and_settled_once(
    priced: LLM, stub: StubProvider, patient: Callable[..., Retry]
) -> None:
    purse = Purse()
    stub.queue(server_error(), answer("hi", input_tokens=1000, output_tokens=100))
    await compose([priced], ledger=MemoryLedger(), budget=purse, retry=patient).complete(QUESTION)
    assert purse.open == {}
    assert purse.settled == [
        (Usage(), Decimal(0)),
        (Usage(input_tokens=1000, output_tokens=100), Decimal("0.0045")),
    ]


async def test_a_timeout_is_settled_with_what_was_sent(priced: LLM, stub: StubProvider) -> None:
    purse = Purse()
    stub.queue(hang())
    with pytest.raises(LLMTimeout):
        await Budgeted(priced, purse).complete(LLMRequest(QUESTION.messages, timeout=0.1))
    assert purse.settled[0][0].input_tokens > 0
    assert purse.settled[0][0].output_tokens == 0


async def test_without_budget_nothing_is_called_or_tried_again(
    priced: LLM, stub: StubProvider, patient: Callable[..., Retry]
) -> None:
    purse, ledger = Purse(limit=Decimal("0.001")), MemoryLedger()
    chain = compose([priced, priced], ledger=ledger, budget=purse, retry=patient)
    with pytest.raises(Broke):
        await chain.complete(LLMRequest(QUESTION.messages, max_tokens=4000))
    assert stub.calls == []
    assert ledger.attempts == []


async def test_the_reservation_covers_prompt_and_longest_answer(
    priced: LLM, stub: StubProvider
) -> None:
    reserved: list[Estimate] = []

    class Watching(Purse):
        async def reserve(self, estimate: Estimate) -> UUID:
            reserved.append(estimate)
            return await super().reserve(estimate)

    request = LLMRequest((Message("user", "x" * 4000),), max_tokens=500)
    await Budgeted(priced, Watching()).complete(request)
    assert reserved[0].usage == Usage(input_tokens=1004, output_tokens=500)
    assert reserved[0].usd == Decimal("0.010512")


async def test_the_next_model_answers_when_the_first_cannot(
    llm: LLM, stub: StubProvider, logs: list[dict[str, Any]]
) -> None:
    stub.queue(unauthorized(), answer("from the second"))
    reply = await Fallback([llm, llm]).complete(QUESTION)
    assert reply.text == "from the second"
    assert [entry["event"] for entry in logs] == ["llm_fallback"]


async def test_when_all_fail_the_last_error_is_raised(
    llm: LLM, stub: StubProvider, logs: list[dict[str, Any]]
) -> None:
    stub.queue(reset(), rate_limited(5))
    with pytest.raises(LLMRateLimited):
        await Fallback([llm, llm]).complete(QUESTION)
    assert [entry["code"] for entry in logs] == [LLMConnection.code]


async def test_a_refusal_is_not_shopped_around(llm: LLM, stub: StubProvider) -> None:
    stub.queue(Fail(400, "content_filter"))
    with pytest.raises(LLMRefused):
        await Fallback([llm, llm]).complete(QUESTION)
    assert len(stub.calls) == 1


async def test_each_model_of_a_fallback_has_its_own_tries(
    llm: LLM, stub: StubProvider, patient: Callable[..., Retry]
) -> None:
    ledger = MemoryLedger()
    stub.queue(*[server_error()] * 3, unauthorized())
    chain = compose([llm, llm], ledger=ledger, retry=patient)
    with pytest.raises(LLMAuth):
        await chain.complete(QUESTION)
    assert [a.error for a in ledger.attempts] == ["llm_server_error"] * 3 + ["llm_auth"]
    assert chain.model == "some-model"


def test_an_empty_fallback_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Fallback([])


THOUSAND = Usage(input_tokens=1000, output_tokens=1000)


def test_prices() -> None:
    official = "https://api.openai.com/v1"
    full = price(THOUSAND, provider="openai", model="gpt-4o-mini-2024-07-18", endpoint=official)
    cached = price(
        Usage(input_tokens=1000, output_tokens=1000, cached_input_tokens=1000),
        provider="openai",
        model="gpt-4o-mini",
        endpoint=official,
    )
    assert full == Decimal("0.00075")
    assert cached == Decimal("0.000675")
    assert price(THOUSAND, provider="azure", model="gpt-4o", endpoint="https://x") is not None
    assert price(
        THOUSAND, provider="bedrock", model="anthropic.claude-sonnet-4-5-20250929-v1:0", endpoint=""
    )


def test_an_unknown_price_is_none_and_never_zero() -> None:
    assert price(THOUSAND, provider="openai", model="no-such", endpoint="https://x") is None
    home = "http://127.0.0.1:11434/v1"
    assert price(THOUSAND, provider="compatible", model="gpt-4o", endpoint=home) is None
    assert price(
        THOUSAND,
        provider="compatible",
        model="llama-3.1-8b-instant",
        endpoint="https://api.groq.com/openai/v1",
    )
