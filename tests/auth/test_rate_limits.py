"""Rate limits: counting in memory and in PostgreSQL, responses, unknown keys per address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import ValidationError

from memory_api.api.proxies import ProxyHeaders
from memory_api.auth.identity import Identity, KeyScope, generate_key
from memory_api.auth.rate_limit_storage import (
    MemoryRateLimitStorage,
    PostgresRateLimitStorage,
)
from memory_api.auth.rate_limits import RateLimited, RateLimits
from memory_api.core.settings import Settings
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


async def take(storage: MemoryRateLimitStorage, key: str, count: int, limit: int = 100) -> int:
    """How many of `count` requests are accepted."""
    hits = [await storage.acquire(key, limit, 60) for _ in range(count)]
    return sum(hits)


@pytest.fixture(params=["memory", "postgresql"])
def storage(request: pytest.FixtureRequest, runtime: Runtime) -> MemoryRateLimitStorage:
    clock = Clock()
    if request.param == "memory":
        return MemoryRateLimitStorage(clock)
    return PostgresRateLimitStorage(runtime.sessions, clock)


async def test_limit_holds_in_a_sliding_window(storage: MemoryRateLimitStorage) -> None:
    key, clock = str(uuid4()), storage.clock
    assert isinstance(clock, Clock)
    assert await take(storage, key, 150) == 100
    assert storage.remaining(key, 100, 60) == (0, 60)
    clock.now += 60  # the previous minute still counts entirely
    assert await take(storage, key, 10) == 0
    clock.now += 30  # half of it
    assert await take(storage, key, 100) == 50
    clock.now += 120
    assert await take(storage, key, 150) == 100


async def test_refused_caller_is_told_when_to_retry(storage: MemoryRateLimitStorage) -> None:
    key, clock = str(uuid4()), storage.clock
    assert isinstance(clock, Clock)
    await take(storage, key, 10, limit=10)
    clock.now += 60
    assert await take(storage, key, 1, limit=10) == 0
    clock.now += storage.seconds_until_free(key, 10, 60)
    assert await take(storage, key, 1, limit=10) == 1


async def test_processes_share_a_limit_in_postgresql(runtime: Runtime) -> None:
    key, clock = str(uuid4()), Clock()
    processes = [PostgresRateLimitStorage(runtime.sessions, clock) for _ in range(3)]
    accepted = 0
    for _ in range(150):
        accepted += sum(await asyncio.gather(*(take(p, key, 1) for p in processes)))
        clock.now += 0.01
    assert 90 <= accepted <= 100


async def test_few_requests_ask_the_database(runtime: Runtime) -> None:
    storage = PostgresRateLimitStorage(runtime.sessions, Clock())
    leases: list[str] = []
    lease = storage._lease

    async def counted(key: str, limit: int, expiry: int) -> None:
        leases.append(key)
        await lease(key, limit, expiry)

    storage._lease = counted  # type: ignore[method-assign]
    assert await take(storage, str(uuid4()), 1000, limit=10_000) == 1000
    assert len(leases) <= 2


async def test_windows_of_strangers_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_api.auth.rate_limit_storage.MAX_WINDOWS", 100)
    storage = MemoryRateLimitStorage(Clock())
    for n in range(1000):
        await take(storage, str(n), 1)
    assert len(storage._windows) <= 100


async def test_keys_of_a_tenant_share_its_limit(runtime: Runtime, settings: Settings) -> None:
    limits = RateLimits(settings.model_copy(update=OFF | {"rate_limit_tenant": "3/hour"}),
                        runtime.sessions)  # fmt: skip
    tenant = uuid4()
    for _ in range(3):
        await limits.count_request(caller(tenant=tenant))
    with pytest.raises(RateLimited, match="this tenant"):
        await limits.count_request(caller(tenant=tenant))
    assert '"tenant";r=2' in await limits.count_request(caller())


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


async def test_addresses_of_one_ipv6_network_are_one_client(
    runtime: Runtime, settings: Settings
) -> None:
    limits = RateLimits(
        settings.model_copy(update=OFF | {"rate_limit_failed_keys": "1/hour"}), runtime.sessions
    )
    await limits.count_unknown_key("2001:db8::1", "2001:db8::1")
    with pytest.raises(RateLimited):
        await limits.count_unknown_key("2001:db8::ffff", "2001:db8::ffff")
    await limits.count_unknown_key("2001:db8:0:1::1", "2001:db8:0:1::1")
