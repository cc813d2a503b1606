"""Retry, budget, ledger and fallback, over a real provider that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from memory_api.bootstrap import wrap_models
from memory_api.budgets.accounting import AccountedLLM, estimate_usage
from memory_api.llm.circuit_breaker import CircuitBreakers
from memory_api.llm.deadline import llm_deadline
from memory_api.llm.errors import (
    LLMAuthenticationFailed,
    LLMConnectionFailed,
    LLMError,
    LLMRateLimited,
    LLMRefused,
    LLMServerError,
    LLMTimeout,
)
from memory_api.llm.port import LLM, LLMRequest, Message, TokenUsage
from memory_api.llm.registry import open_llm
from memory_api.llm.wrappers import FallbackLLM, RetryingLLM, price_usd
from tests.support.ledger import Broke, MemoryAccounting
from tests.support.stub_provider import (
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
from tests.support.stub_provider.behaviours import Fail

QUESTION = LLMRequest(
    (Message("user", "Hello?"),),
    timeout=10,
    purpose="greet",
    prompt_hash="abc",
    tenant_id=uuid4(),
)


def chain_of(*llms: LLM, accounting: MemoryAccounting, **options: Any) -> LLM:
    return wrap_models(llms, accounting=accounting, circuit_breakers=CircuitBreakers(), **options)


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
def patient(waits: list[float]) -> Callable[..., RetryingLLM]:
    """A Retry that writes down how long it would wait, and always draws the longest."""

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return partial(RetryingLLM, sleep=sleep, uniform=lambda low, high: high)


async def test_transient_error_is_tried_three_times(
    llm: LLM, stub: StubProvider, patient: Callable[..., RetryingLLM], waits: list[float]
) -> None:
    stub.queue(server_error(), reset(), answer("at last"))
    assert (await patient(llm).complete(QUESTION)).text == "at last"
    assert waits == [2.0, 4.0]


async def test_last_error_is_raised_after_retries(
    llm: LLM, stub: StubProvider, patient: Callable[..., RetryingLLM], waits: list[float]
) -> None:
    stub.queue(server_error(500), server_error(500), server_error(503), answer("too late"))
    with pytest.raises(LLMServerError, match="503"):
        await patient(llm).complete(QUESTION)
    assert len(stub.calls) == 3
    assert len(waits) == 2


async def test_worker_tries_once(
    llm: LLM, stub: StubProvider, patient: Callable[..., RetryingLLM], waits: list[float]
) -> None:
    stub.queue(server_error())
    with pytest.raises(LLMServerError):
        await patient(llm, attempts=1).complete(QUESTION)
    assert len(stub.calls) == 1
    assert waits == []


@pytest.mark.parametrize(
    "final", [unauthorized(), bad_request(), quota(), Fail(400, "content_filter")]
)
async def test_permanent_error_is_not_retried(
    llm: LLM, stub: StubProvider, patient: Callable[..., RetryingLLM], final: Fail
) -> None:
    stub.queue(final, answer("never asked"))
    with pytest.raises(LLMError):
        await patient(llm).complete(QUESTION)
    assert len(stub.calls) == 1


async def test_provider_is_never_called_before_the_time_it_asked_for(
    llm: LLM, stub: StubProvider, patient: Callable[..., RetryingLLM], waits: list[float]
) -> None:
    stub.queue(rate_limited(9), rate_limited(3600), answer("ok"))
    with pytest.raises(LLMRateLimited) as raised:
        await patient(llm).complete(QUESTION)
    assert raised.value.retry_after == 3600
    assert (waits, len(stub.calls)) == ([9.0], 2)


@pytest.mark.parametrize(("wait", "calls"), [(100, 2), (30, 1)])
async def test_pause_must_fit_in_the_time_of_the_request(
    llm: LLM, stub: StubProvider, patient: Callable[..., RetryingLLM], wait: float, calls: int
) -> None:
    stub.queue(rate_limited(40), answer("ok"))
    with llm_deadline(wait):
        done = await asyncio.gather(patient(llm).complete(QUESTION), return_exceptions=True)
    assert isinstance(done[0], LLMRateLimited) == (calls == 1)
    assert len(stub.calls) == calls


async def test_wait_is_random_up_to_step(llm: LLM, stub: StubProvider) -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    async def sleep(seconds: float) -> None:
        assert seconds == 0

    stub.queue(*[server_error()] * 3)
    with pytest.raises(LLMServerError):
        await RetryingLLM(llm, sleep=sleep, uniform=uniform).complete(QUESTION)
    assert drawn == [(0, 2.0), (0, 4.0)]


async def test_delay_is_random_by_default(llm: LLM, stub: StubProvider) -> None:
    stub.behave = lambda call: server_error()
    waits: list[list[float]] = []

    async def sleep(seconds: float) -> None:
        waits[-1].append(seconds)

    for _ in range(5):
        waits.append([])
        with pytest.raises(LLMError):
            await RetryingLLM(llm, sleep=sleep).complete(QUESTION)
    for position, step in enumerate((2.0, 4.0)):
        delays = [each[position] for each in waits]
        assert all(0 <= delay <= step for delay in delays)
        assert len(set(delays)) == 5, "the same delay again is as likely as 1 in 2 ** 50"


def test_zero_attempts_is_an_error(llm: LLM) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RetryingLLM(llm, attempts=0)


async def test_every_attempt_is_recorded(
    priced: LLM, stub: StubProvider, patient: Callable[..., RetryingLLM]
) -> None:
    ledger = MemoryAccounting()
    stub.queue(rate_limited(), answer("hi", input_tokens=1000, output_tokens=100))
    await chain_of(priced, accounting=ledger, retry=patient).complete(QUESTION)
    failed, good = ledger.attempts
    assert (failed.status, failed.error, failed.usage, failed.usd) == (
        "error",
        "llm_rate_limited",
        None,
        None,
    )
    assert "slow down" in (failed.detail or "")
    assert (good.status, good.error, good.finish_reason) == ("ok", None, "stop")
    assert good.usage == TokenUsage(input_tokens=1000, output_tokens=100)
    assert good.usd == Decimal("0.0045")  # 3 and 15 dollars a million
    assert ledger.usd == good.usd
    assert {a.purpose for a in ledger.attempts} == {"greet"}
    assert {a.prompt_hash for a in ledger.attempts} == {"abc"}
    assert [a.request_id for a in ledger.attempts] == ["req_1", "req_2"]


async def test_refusal_is_recorded_with_usage(priced: LLM, stub: StubProvider) -> None:
    ledger = MemoryAccounting()
    stub.queue(refusal())
    await AccountedLLM(priced, ledger).complete(QUESTION)
    assert ledger.attempts[0].finish_reason == "refusal"
    assert ledger.attempts[0].usage


async def test_cancelled_call_is_recorded(priced: LLM, stub: StubProvider) -> None:
    ledger = MemoryAccounting()
    stub.queue(hang())
    chain = chain_of(priced, accounting=ledger)
    task = asyncio.create_task(chain.complete(QUESTION))
    while not stub.calls and not task.done():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.attempts[0].error == "cancelled"
    assert ledger.open == {}
    assert ledger.finished[0].tokens == estimate_usage(QUESTION).input_tokens


async def test_each_attempt_is_reserved_and_settled_once(
    priced: LLM, stub: StubProvider, patient: Callable[..., RetryingLLM]
) -> None:
    ledger = MemoryAccounting()
    stub.queue(server_error(), answer("hi", input_tokens=1000, output_tokens=100))
    await chain_of(priced, accounting=ledger, retry=patient).complete(QUESTION)
    assert ledger.open == {}
    assert [(call.tokens, call.usd) for call in ledger.finished] == [
        (0, Decimal(0)),
        (1100, Decimal("0.0045")),
    ]


async def test_timeout_is_settled_with_what_was_sent(priced: LLM, stub: StubProvider) -> None:
    ledger = MemoryAccounting()
    stub.queue(hang())
    with pytest.raises(LLMTimeout):
        await AccountedLLM(priced, ledger).complete(replace(QUESTION, timeout=0.1))
    assert ledger.finished[0].tokens == estimate_usage(QUESTION).input_tokens


async def test_exhausted_budget_prevents_call_and_retry(
    priced: LLM, stub: StubProvider, patient: Callable[..., RetryingLLM]
) -> None:
    ledger = MemoryAccounting(limit=Decimal("0.001"))
    chain = chain_of(priced, priced, accounting=ledger, retry=patient)
    with pytest.raises(Broke):
        await chain.complete(replace(QUESTION, max_tokens=4000))
    assert stub.calls == []
    assert ledger.attempts == []


async def test_reservation_covers_prompt_and_longest_answer(
    priced: LLM, stub: StubProvider
) -> None:
    ledger = MemoryAccounting()
    request = LLMRequest((Message("user", "x" * 4000),), max_tokens=500, tenant_id=uuid4())
    await AccountedLLM(priced, ledger).complete(request)
    (reserved,) = ledger.reserved
    assert reserved.usage == TokenUsage(input_tokens=1004, output_tokens=500)
    assert reserved.usd == Decimal("0.010512")


async def test_next_model_answers_when_the_first_cannot(
    llm: LLM, stub: StubProvider, logs: list[dict[str, Any]]
) -> None:
    stub.queue(unauthorized(), answer("from the second"))
    reply = await FallbackLLM([llm, llm]).complete(QUESTION)
    assert reply.text == "from the second"
    assert [entry["event"] for entry in logs] == ["llm_fallback_used"]


async def test_when_all_fail_the_last_error_is_raised(
    llm: LLM, stub: StubProvider, logs: list[dict[str, Any]]
) -> None:
    stub.queue(reset(), rate_limited(5))
    with pytest.raises(LLMRateLimited):
        await FallbackLLM([llm, llm]).complete(QUESTION)
    assert [entry["code"] for entry in logs] == [LLMConnectionFailed.code]


async def test_refusal_is_not_sent_to_next_model(llm: LLM, stub: StubProvider) -> None:
    stub.queue(Fail(400, "content_filter"))
    with pytest.raises(LLMRefused):
        await FallbackLLM([llm, llm]).complete(QUESTION)
    assert len(stub.calls) == 1


async def test_each_fallback_model_has_own_retries(
    llm: LLM, stub: StubProvider, patient: Callable[..., RetryingLLM]
) -> None:
    ledger = MemoryAccounting()
    stub.queue(*[server_error()] * 3, unauthorized())
    chain = chain_of(llm, llm, accounting=ledger, retry=patient)
    with pytest.raises(LLMAuthenticationFailed):
        await chain.complete(QUESTION)
    assert [a.error for a in ledger.attempts] == ["llm_server_error"] * 3 + ["llm_auth"]
    assert chain.model == "some-model"


def test_empty_fallback_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        FallbackLLM([])


THOUSAND = TokenUsage(input_tokens=1000, output_tokens=1000)


def test_prices() -> None:
    official = "https://api.openai.com/v1"
    full = price_usd(THOUSAND, provider="openai", model="gpt-4o-mini-2024-07-18", endpoint=official)
    cached = price_usd(
        TokenUsage(input_tokens=1000, output_tokens=1000, cached_input_tokens=1000),
        provider="openai",
        model="gpt-4o-mini",
        endpoint=official,
    )
    assert full == Decimal("0.00075")
    assert cached == Decimal("0.000675")
    assert price_usd(THOUSAND, provider="azure", model="gpt-4o", endpoint="https://x") is not None
    assert price_usd(
        THOUSAND, provider="bedrock", model="anthropic.claude-sonnet-4-5-20250929-v1:0", endpoint=""
    )


def test_unknown_price_is_none_and_never_zero() -> None:
    assert price_usd(THOUSAND, provider="openai", model="no-such", endpoint="https://x") is None
    home = "http://127.0.0.1:11434/v1"
    assert price_usd(THOUSAND, provider="compatible", model="gpt-4o", endpoint=home) is None
    assert price_usd(
        THOUSAND,
        provider="compatible",
        model="llama-3.1-8b-instant",
        endpoint="https://api.groq.com/openai/v1",
    )
