"""A provider that fails is left alone, and what it did to others' work is not counted."""

from __future__ import annotations

from typing import Any

import pytest

from apps.memory_api.llm.errors import (
    LLMAuth,
    LLMBadRequest,
    LLMError,
    LLMPaused,
    LLMQuota,
    LLMRateLimited,
    LLMRefused,
    LLMServerError,
    LLMTimeout,
)
from apps.memory_api.llm.pause import LONGEST, LONGEST_ASKED, Gate, Gated
from apps.memory_api.llm.port import LLM, LLMRequest, Message
from tests.stub_provider import StubProvider, bad_request, rate_limited, server_error

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
def gate(clock: Clock) -> Gate:
    return Gate(clock)


def test_the_pause_doubles_up_to_five_minutes(gate: Gate, clock: Clock) -> None:
    waits: list[float] = []
    for _ in range(12):
        gate.failed(LLMServerError(), clock.now)
        waits.append(gate.wait)
        clock.now += gate.wait
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == LONGEST
    gate.answered()
    gate.failed(LLMServerError(), clock.now)
    assert gate.wait == 1


def test_calls_under_way_when_it_closed_count_as_one(gate: Gate, clock: Clock) -> None:
    asked_at = clock.now
    clock.now += 1
    for _ in range(16):
        gate.failed(LLMTimeout(), asked_at)
    assert gate.wait == 1


def test_the_provider_says_how_long(gate: Gate, clock: Clock) -> None:
    gate.failed(LLMRateLimited(retry_after=40), clock.now)
    assert gate.wait == 40
    gate.failed(LLMRateLimited(retry_after=10**9), clock.now)
    assert gate.wait == LONGEST_ASKED


@pytest.mark.parametrize("error", [LLMRateLimited, LLMQuota, LLMAuth, LLMPaused])
def test_who_turns_everybody_away_excuses_everybody(
    gate: Gate, clock: Clock, error: type[LLMError]
) -> None:
    since = clock.now
    clock.now += 1
    gate.answered()
    assert gate.excuses(error(), since)


@pytest.mark.parametrize("error", [LLMTimeout, LLMServerError])
def test_other_failures_are_excused_unless_others_were_answered(
    gate: Gate, clock: Clock, error: type[LLMError]
) -> None:
    gate.answered()
    clock.now += 1
    since = clock.now
    assert gate.excuses(error(), since)
    gate.answered()
    assert not gate.excuses(error(), since)


@pytest.mark.parametrize("error", [LLMBadRequest, LLMRefused])
def test_what_only_this_request_did_is_never_excused(gate: Gate, error: type[LLMError]) -> None:
    assert not gate.excuses(error(), 0.0)


async def test_nobody_is_asked_while_it_is_closed(
    llm: LLM, stub: StubProvider, gate: Gate, clock: Clock
) -> None:
    gated = Gated(llm, gate)
    stub.queue(rate_limited(retry_after=7))
    with pytest.raises(LLMRateLimited):
        await gated.complete(ASK)
    with pytest.raises(LLMPaused, match="llm_rate_limited") as paused:
        await gated.complete(ASK)
    assert paused.value.retry_after == 7
    assert paused.value.headers == {"Retry-After": "7"}
    assert len(stub.calls) == 1
    clock.now += 7
    assert (await gated.complete(ASK)).text == "ok"
    assert gate.cause is None


@pytest.mark.parametrize(("behaviour", "closed"), [(server_error(), True), (bad_request(), False)])
async def test_only_the_providers_own_fault_closes_it(
    llm: LLM, stub: StubProvider, gate: Gate, behaviour: Any, closed: bool
) -> None:
    stub.queue(behaviour)
    with pytest.raises(LLMError):
        await Gated(llm, gate).complete(ASK)
    assert (gate.wait > 0) is closed
