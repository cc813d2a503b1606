"""Rate limits: counting, responses, unknown keys per address, refusals that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from uuid import uuid4

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import ValidationError

from memory_api.api.http_protocol import ProxyHeaders
from memory_api.auth import rate_limits
from memory_api.auth.identity import Identity, KeyScope, generate_key
from memory_api.auth.rate_limits import (
    BURST,
    MAX_DELAY_SECONDS,
    REFUSALS_PER_SECOND,
    RateLimit,
    RateLimited,
    RateLimits,
    RefusalDelay,
)
from memory_api.core.settings import Settings, parse_rate_limit
from memory_api.runtime import Runtime
from tests.support.cases import each_case
from tests.support.live_service import with_runtime
from tests.support.problems import assert_problem

OFF = {"rate_limit_key": "off", "rate_limit_tenant": "off", "rate_limit_failed_keys": "off"}


class Clock:
    """Seconds since the epoch, at the start of a minute."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def caller(key: object = None, tenant: object = None) -> Identity:
    return Identity(tenant or uuid4(), key or uuid4(), frozenset({KeyScope.READ}))  # type: ignore[arg-type]


def limit_of(text: str, clock: Clock) -> RateLimit:
    item = parse_rate_limit(text)
    assert item
    return RateLimit("key", "this API key", item, clock)


def take(limit: RateLimit, count: int, owner: object = "one") -> int:
    """How many of `count` requests are accepted."""
    accepted = 0
    for _ in range(count):
        with suppress(RateLimited):
            limit.count(owner)
            accepted += 1
    return accepted


def test_limit_holds_in_a_sliding_window() -> None:
    clock = Clock()
    limit = limit_of("100/minute", clock)
    assert take(limit, 150) == 100
    assert limit.state("one") == '"key";r=0;t=60'
    clock.now += 60  # the previous minute still counts entirely
    assert take(limit, 10) == 0
    clock.now += 30  # half of it
    assert take(limit, 100) == 50
    clock.now += 120
    assert take(limit, 150) == 100


def test_refused_caller_is_told_when_to_retry() -> None:
    clock = Clock()
    limit = limit_of("10/minute", clock)
    take(limit, 10)
    clock.now += 60
    with pytest.raises(RateLimited) as refused:
        limit.count("one")
    clock.now += int(refused.value.headers["Retry-After"])
    assert take(limit, 1) == 1


def test_windows_of_strangers_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MAX_WINDOWS", 100)
    limit = limit_of("100/minute", Clock())
    for number in range(1000):
        take(limit, 1, number)
    assert len(limit._windows) <= 100


def test_keys_of_a_tenant_share_its_limit(settings: Settings) -> None:
    limits = RateLimits(settings.model_copy(update=OFF | {"rate_limit_tenant": "3/hour"}))
    tenant = uuid4()
    for _ in range(3):
        limits.count_request(caller(tenant=tenant))
    with pytest.raises(RateLimited, match="this tenant"):
        limits.count_request(caller(tenant=tenant))
    assert '"tenant";r=2' in limits.count_request(caller())


@each_case("value", ["", "many", "0/minute", "5/fortnight"])
def test_wrong_limit_is_refused(value: str) -> None:
    with pytest.raises(ValidationError, match="rate_limit_key"):
        Settings(_env_file=None, rate_limit_key=value)  # type: ignore[call-arg]


Client = Callable[..., "asynccontextmanager[httpx2.AsyncClient]"]


@pytest.fixture
def limited(app: FastAPI, runtime: Runtime) -> Callable[..., object]:
    """An API process with these limits, for clients of one address."""

    @asynccontextmanager
    async def open_client(
        address: str = "203.0.113.7", **limits: str
    ) -> AsyncIterator[httpx2.AsyncClient]:
        settings = runtime.settings.model_copy(update=OFF | limits)
        changed = with_runtime(app, replace(runtime, settings=settings))
        transport = httpx2.ASGITransport(app=changed, client=(address, 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://hansei") as client:
            yield client

    return open_client


async def test_response_above_the_limit(limited, tenant) -> None:
    async with limited(rate_limit_key="2/hour") as client:
        first = await client.get("/api/v1/traces", headers=tenant.auth("read"))
        assert first.headers["RateLimit-Policy"] == '"key";q=2;w=3600'
        assert first.headers["RateLimit"].startswith('"key";r=1;t=')
        await client.get("/api/v1/traces", headers=tenant.auth("read"))
        refused = await client.get("/api/v1/traces", headers=tenant.auth("read"))
        assert_problem(refused, 429, "rate_limited")
        assert 0 < int(refused.headers["Retry-After"]) <= 3601
        assert refused.headers["RateLimit"].startswith('"key";r=0;')
        other = await client.get("/api/v1/traces", headers=tenant.auth("write"))
        assert other.status_code == 200
        assert (await client.get("/health")).status_code == 200


async def test_guessed_keys_are_limited_and_working_keys_are_not(
    limited, tenant, make_tenant, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups = 0
    lookup = "memory_api.api.deps.get_valid_key"
    original = __import__("memory_api.api.deps", fromlist=["x"]).get_valid_key

    async def counted(*arguments: object) -> object:
        nonlocal lookups
        lookups += 1
        return await original(*arguments)

    monkeypatch.setattr(lookup, counted)
    async with limited(rate_limit_failed_keys="5/hour") as client:
        assert (await client.get("/api/v1/traces", headers=tenant.auth())).status_code == 200
        guesses = [generate_key(tenant.id).text for _ in range(40)]
        answers = await asyncio.gather(
            *(client.get("/api/v1/traces", headers={"Authorization": f"Bearer {guess}"})
              for guess in guesses)
        )  # fmt: skip
        assert sorted(a.status_code for a in answers) == [401] * 5 + [429] * 35
        assert lookups == 6
        cache = client._transport.app.state.api.key_cache
        cache._entries = {claim: (caller, 0.0) for claim, (caller, _) in cache._entries.items()}
        known = await client.get("/api/v1/traces", headers=tenant.auth())
        assert known.status_code == 200, "a key that worked before is looked up again"
        new = (await make_tenant()).auth()
        assert_problem(await client.get("/api/v1/traces", headers=new), 429, "rate_limited")
    async with limited("203.0.113.8", rate_limit_failed_keys="5/hour") as client:
        assert (await client.get("/api/v1/traces", headers=new)).status_code == 200


async def test_valid_keys_do_not_use_up_the_limit_of_unknown_ones(limited, make_tenant) -> None:
    keys = [(await make_tenant()).auth() for _ in range(4)]
    async with limited(rate_limit_failed_keys="2/hour") as client:
        for key in keys:
            assert (await client.get("/api/v1/traces", headers=key)).status_code == 200


async def test_header_that_a_client_writes_gives_no_endless_counters(
    app, runtime: Runtime, tenant
) -> None:
    """A proxy that passes `X-Forwarded-For` on, or is trusted by `FORWARDED_ALLOW_IPS=*`."""
    settings = runtime.settings.model_copy(update=OFF | {"rate_limit_failed_keys": "2/hour"})
    limited = ProxyHeaders(with_runtime(app, replace(runtime, settings=settings)))
    transport = httpx2.ASGITransport(app=limited, client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://hansei") as client:
        statuses: list[int] = []
        for number in range(30):
            guess = generate_key(tenant.id).text
            headers = {
                "Authorization": f"Bearer {guess}",
                "X-Forwarded-For": f"198.51.100.{number}",
            }
            statuses.append((await client.get("/api/v1/traces", headers=headers)).status_code)
    assert statuses == [401] * 20 + [429] * 10


def test_addresses_of_one_ipv6_network_are_one_client(settings: Settings) -> None:
    limits = RateLimits(settings.model_copy(update=OFF | {"rate_limit_failed_keys": "1/hour"}))
    limits.count_unknown_key("2001:db8::1", "2001:db8::1")
    with pytest.raises(RateLimited):
        limits.count_unknown_key("2001:db8::ffff", "2001:db8::ffff")
    limits.count_unknown_key("2001:db8:0:1::1", "2001:db8:0:1::1")


def test_refusals_are_spread_over_time() -> None:
    now = 1_000.0
    delays = RefusalDelay(lambda: now)
    assert [delays.next_delay() for _ in range(BURST)] == [0] * BURST
    spread = [delays.next_delay() for _ in range(10)]
    assert spread == pytest.approx([n / REFUSALS_PER_SECOND for n in range(1, 11)])
    longest = [delays.next_delay() for _ in range(1_000)][-1]
    assert longest == pytest.approx(MAX_DELAY_SECONDS)
    now += MAX_DELAY_SECONDS + BURST / REFUSALS_PER_SECOND
    assert [delays.next_delay() for _ in range(BURST)] == [0] * BURST, "after a quiet time"


async def test_only_so_many_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "BURST", 0)
    monkeypatch.setattr(rate_limits, "MAX_DELAYED", 2)
    monkeypatch.setattr(rate_limits, "REFUSALS_PER_SECOND", 1)
    delays = RefusalDelay()
    waiting = [asyncio.create_task(delays.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    await delays.wait()
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert delays._delayed == 0


async def test_valid_key_does_not_wait_for_refusals(
    app: FastAPI, api: httpx2.AsyncClient, tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "BURST", 1)
    monkeypatch.setattr(rate_limits, "REFUSALS_PER_SECOND", 0.5)
    monkeypatch.setattr(app.state.api.refusal_delay, "_next_at", 0.0)

    async def guess() -> int:
        wrong = {"Authorization": f"Bearer {generate_key(tenant.id).text}"}
        return (await api.get("/api/v1/traces", headers=wrong)).status_code

    assert await guess() == 401
    delayed = asyncio.create_task(guess())
    assert (await api.get("/api/v1/traces")).status_code == 200
    assert not delayed.done()
    assert await delayed == 401
