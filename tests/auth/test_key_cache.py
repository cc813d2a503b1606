"""A key that was checked is taken at its word for five seconds, and no longer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import FastAPI
from httpx2 import AsyncClient
from sqlalchemy import event

from memory_api.auth.identity import (
    KEY_CACHE_SECONDS,
    MAX_CACHED_KEYS,
    Identity,
    KeyCache,
    KeyScope,
    parse_key,
)
from memory_api.auth.queries import revoke_key
from memory_api.core.ids import new_id


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def someone() -> Identity:
    return Identity(new_id(), new_id(), frozenset([KeyScope.READ]))


def test_key_is_cached_for_five_seconds() -> None:
    clock = Clock()
    keys, who = KeyCache(clock), someone()
    claim = (who.tenant_id, b"hash")
    assert keys.get(claim) is None
    keys.add(claim, who, None)
    clock.now += KEY_CACHE_SECONDS - 0.1
    assert keys.get(claim) is who
    clock.now += 0.2
    assert keys.get(claim) is None


def test_cache_distinguishes_tenants_with_same_secret() -> None:
    keys, who = KeyCache(Clock()), someone()
    keys.add((who.tenant_id, b"hash"), who, None)
    assert keys.get((new_id(), b"hash")) is None
    assert keys.get((who.tenant_id, b"other")) is None


def test_cached_key_expires_on_time() -> None:
    clock = Clock()
    keys, who = KeyCache(clock), someone()
    claim = (who.tenant_id, b"hash")
    keys.add(claim, who, datetime.now(UTC) + timedelta(seconds=1))
    assert keys.get(claim) is who
    clock.now += 1.1
    assert keys.get(claim) is None


def test_revoking_removes_only_that_key_from_cache() -> None:
    keys, one, two = KeyCache(Clock()), someone(), someone()
    keys.add((one.tenant_id, b"1"), one, None)
    keys.add((two.tenant_id, b"2"), two, None)
    keys.remove(one.key_id)
    assert keys.get((one.tenant_id, b"1")) is None
    assert keys.get((two.tenant_id, b"2")) is two


def test_cache_size_is_bounded() -> None:
    keys, who = KeyCache(Clock()), someone()
    for n in range(MAX_CACHED_KEYS + 1):
        keys.add((who.tenant_id, str(n).encode()), who, None)
    assert keys.get((who.tenant_id, str(MAX_CACHED_KEYS).encode())) is who
    assert keys.get((who.tenant_id, b"0")) is None


async def test_second_request_does_not_query_key(runtime: Any, api: AsyncClient) -> None:
    sent: list[str] = []

    def hear(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    engine = runtime.sessions.engine.sync_engine
    (await api.get("/api/v1/runs")).raise_for_status()
    event.listen(engine, "before_cursor_execute", hear)
    try:
        (await api.get("/api/v1/runs")).raise_for_status()
    finally:
        event.remove(engine, "before_cursor_execute", hear)
    assert sent
    assert not [statement for statement in sent if "api_keys" in statement]


async def test_key_revoked_by_other_process_stops_after_cache_time(
    app: FastAPI, runtime: Any, tenant: Any, api: AsyncClient
) -> None:
    (await api.get("/api/v1/runs")).raise_for_status()
    claim = parse_key(tenant.keys["admin"])
    known = app.state.api.key_cache.get(claim)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await revoke_key(session, known.key_id)
    app.state.api.key_cache.add(claim, known, datetime.now(UTC))  # five seconds later
    assert (await api.get("/api/v1/runs")).status_code == 401
