"""A provider that fails is left alone, and what it did to others' work is not counted."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from memory_api.llm.circuit_breaker import (
    MAX_PAUSE_SECONDS,
    MAX_REQUESTED_PAUSE_SECONDS,
    REQUESTS_TO_OPEN,
    CircuitBreaker,
    CircuitBreakerLLM,
    CircuitBreakers,
)
from memory_api.llm.errors import (
    LLMAuthenticationFailed,
    LLMBadRequest,
    LLMCircuitOpen,
    LLMError,
    LLMQuotaExceeded,
    LLMRateLimited,
    LLMRefused,
    LLMServerError,
    LLMTimeout,
)
from memory_api.llm.port import LLM, LLMRequest, Message
from memory_api.llm.registry import open_llm
from tests.support.stub_provider import (
    StubProvider,
    bad_request,
    hang,
    rate_limited,
    server_error,
)

ASK = LLMRequest((Message("user", "hello"),), timeout=2)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(clock)


def test_pause_doubles_up_to_five_minutes(gate: CircuitBreaker, clock: Clock) -> None:
    waits: list[float] = []
    for _ in range(12):
        gate.record_failure(LLMRateLimited(), clock.now)
        waits.append(gate.retry_in_seconds)
        clock.now += gate.retry_in_seconds
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == MAX_PAUSE_SECONDS
    gate.record_success()
    gate.record_failure(LLMRateLimited(), clock.now)
    assert gate.retry_in_seconds == 1


def test_concurrent_failures_count_once(gate: CircuitBreaker, clock: Clock) -> None:
    asked_at = clock.now
    clock.now += 1
    for _ in range(16):
        gate.record_failure(LLMRateLimited(), asked_at)
    assert gate.retry_in_seconds == 1


def test_provider_retry_after_sets_pause(gate: CircuitBreaker, clock: Clock) -> None:
    gate.record_failure(LLMRateLimited(retry_after=40), clock.now)
    assert gate.retry_in_seconds == 40
    gate.record_failure(LLMRateLimited(retry_after=10**9), clock.now)
    assert gate.retry_in_seconds == MAX_REQUESTED_PAUSE_SECONDS


@pytest.mark.parametrize(
    "error", [LLMRateLimited, LLMQuotaExceeded, LLMAuthenticationFailed, LLMCircuitOpen]
)
def test_failure_of_all_requests_is_excused(
    gate: CircuitBreaker, clock: Clock, error: type[LLMError]
) -> None:
    since = clock.now
    clock.now += 1
    gate.record_success()
    assert gate.is_provider_outage(error(), since)


@pytest.mark.parametrize("error", [LLMTimeout, LLMServerError])
def test_failure_is_excused_unless_other_requests_succeed(
    gate: CircuitBreaker, clock: Clock, error: type[LLMError]
) -> None:
    gate.record_success()
    clock.now += 1
    since = clock.now
    assert gate.is_provider_outage(error(), since)
    gate.record_success()
    assert not gate.is_provider_outage(error(), since)


@pytest.mark.parametrize("error", [LLMBadRequest, LLMRefused])
def test_failure_of_request_itself_is_never_excused(
    gate: CircuitBreaker, error: type[LLMError]
) -> None:
    assert not gate.is_provider_outage(error(), 0.0)


async def test_open_circuit_blocks_calls(
    llm: LLM, stub: StubProvider, gate: CircuitBreaker, clock: Clock
) -> None:
    gated = CircuitBreakerLLM(llm, gate)
    stub.queue(rate_limited(retry_after=7))
    with pytest.raises(LLMRateLimited):
        await gated.complete(ASK)
    with pytest.raises(LLMCircuitOpen, match="llm_rate_limited") as paused:
        await gated.complete(ASK)
    assert paused.value.retry_after == 7
    assert paused.value.headers == {"Retry-After": "7"}
    assert len(stub.calls) == 1
    clock.now += 7
    assert (await gated.complete(ASK)).text == "ok"
    assert gate.cause is None


async def test_rejected_request_does_not_open_circuit(
    llm: LLM, stub: StubProvider, gate: CircuitBreaker
) -> None:
    stub.queue(bad_request())
    with pytest.raises(LLMError):
        await CircuitBreakerLLM(llm, gate).complete(ASK)
    assert gate.retry_in_seconds == 0


@pytest.mark.parametrize("behaviour", [server_error(), hang()])
async def test_one_request_that_fails_again_and_again_does_not_open_circuit(
    llm: LLM, stub: StubProvider, gate: CircuitBreaker, clock: Clock, behaviour: Any
) -> None:
    """An over-long prompt of one tenant times out each time; nobody else waits for it."""
    gated = CircuitBreakerLLM(llm, gate)
    for _ in range(10):
        clock.now += 1
        stub.queue(behaviour)
        with pytest.raises(LLMError):
            await gated.complete(LLMRequest((Message("user", "too long"),), timeout=0.2))
    assert gate.retry_in_seconds == 0


async def test_different_requests_that_fail_open_circuit(
    llm: LLM, stub: StubProvider, gate: CircuitBreaker, clock: Clock
) -> None:
    gated = CircuitBreakerLLM(llm, gate)
    pauses: list[float] = []
    for number in range(REQUESTS_TO_OPEN):
        clock.now += 1
        stub.queue(server_error())
        with pytest.raises(LLMServerError) as raised:
            await gated.complete(LLMRequest((Message("user", f"question {number}"),)))
        pauses.append(raised.value.pause_seconds)
    assert pauses == [0.0, 0.0, 1.0]
    assert raised.value.is_outage


async def test_failing_requests_of_a_tenant_pause_that_tenant_only(
    llm: LLM, stub: StubProvider, gate: CircuitBreaker, clock: Clock
) -> None:
    """Three slow requests of one tenant; a second tenant that fails too shows an outage."""
    gated = CircuitBreakerLLM(llm, gate)
    slow, second, third = uuid4(), uuid4(), uuid4()

    async def ask(tenant: UUID, number: int = 0) -> str:
        message = Message("user", f"question {number}")
        reply = await gated.complete(LLMRequest((message,), timeout=0.2, tenant_id=tenant))
        return reply.text

    async def fail(tenant: UUID) -> None:
        for number in range(REQUESTS_TO_OPEN):
            clock.now += 0.001
            stub.queue(hang())
            with pytest.raises(LLMTimeout):
                await ask(tenant, number)

    await fail(slow)
    with pytest.raises(LLMCircuitOpen, match="llm_timeout"):
        await ask(slow)
    assert await ask(second) == "ok"
    with pytest.raises(LLMCircuitOpen):
        await ask(slow)
    assert gate.retry_in_seconds == 0
    await fail(second)
    with pytest.raises(LLMCircuitOpen):
        await ask(third)
    clock.now += MAX_PAUSE_SECONDS
    assert await ask(slow) == "ok"
    assert await ask(third) == "ok"


async def test_each_provider_key_and_model_has_its_own_circuit(stub: StubProvider) -> None:
    def opened(model: str = "m", key: str = "k", provider: str = "openai") -> LLM:
        url = stub.openai_url if provider == "openai" else stub.anthropic_url
        llm = open_llm(provider, model=model, api_key=key, base_url=url)
        assert llm is not None
        return llm

    breakers = CircuitBreakers()
    models = [opened(), opened(model="n"), opened(key="other"), opened(provider="anthropic")]
    found = [breakers.get(llm) for llm in models]
    assert len({id(breaker) for breaker in found}) == 4
    assert breakers.get(opened()) is found[0]
    stub.queue(rate_limited(60))
    with pytest.raises(LLMRateLimited):
        await CircuitBreakerLLM(models[0], found[0]).complete(ASK)
    assert (await CircuitBreakerLLM(models[1], found[1]).complete(ASK)).text == "ok"
    assert "k" not in {key.key for key, _ in breakers.items()}, "a fingerprint, not the key"
    for llm in models:
        await llm.aclose()
