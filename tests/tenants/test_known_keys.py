"""A key that was checked is taken at its word for five seconds, and no longer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from httpx2 import AsyncClient
from sqlalchemy import event

from apps.memory_api.core.ids import new_id
from apps.memory_api.tenants.identity import Access, Identity, read_key
from apps.memory_api.tenants.known import MOST, SECONDS, KnownKeys
from apps.memory_api.tenants.queries import revoke_key


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def someone() -> Identity:
    return Identity(new_id(), new_id(), frozenset([Access.READ]))


def test_a_key_is_known_for_five_seconds() -> None:
    clock = Clock()
    keys, who = KnownKeys(clock), someone()
    claim = (who.tenant_id, b"hash")
    assert keys.find(claim) is None
    keys.remember(claim, who, None)
    clock.now += SECONDS - 0.1
    assert keys.find(claim) is who
    clock.now += 0.2
    assert keys.find(claim) is None


def test_another_tenant_with_the_same_secret_is_not_known() -> None:
    keys, who = KnownKeys(Clock()), someone()
    keys.remember((who.tenant_id, b"hash"), who, None)
    assert keys.find((new_id(), b"hash")) is None
    assert keys.find((who.tenant_id, b"other")) is None


def test_a_key_that_expires_sooner_is_known_until_then() -> None:
    clock = Clock()
    keys, who = KnownKeys(clock), someone()
    claim = (who.tenant_id, b"hash")
    keys.remember(claim, who, datetime.now(UTC) + timedelta(seconds=1))
    assert keys.find(claim) is who
    clock.now += 1.1
    assert keys.find(claim) is None


def test_what_is_revoked_is_forgotten_and_nothing_else() -> None:
    keys, one, two = KnownKeys(Clock()), someone(), someone()
    keys.remember((one.tenant_id, b"1"), one, None)
    keys.remember((two.tenant_id, b"2"), two, None)
    keys.forget(one.key_id)
    assert keys.find((one.tenant_id, b"1")) is None
    assert keys.find((two.tenant_id, b"2")) is two


def test_memory_is_bounded() -> None:
    keys, who = KnownKeys(Clock()), someone()
    for n in range(MOST + 1):
        keys.remember((who.tenant_id, str(n).encode()), who, None)
    assert keys.find((who.tenant_id, str(MOST).encode())) is who
    assert keys.find((who.tenant_id, b"0")) is None


async def test_a_second_request_asks_the_database_nothing_about_its_key(
    runtime: Any, api: AsyncClient
) -> None:
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


async def test_a_key_revoked_elsewhere_stops_when_its_time_is_over(
    runtime: Any, tenant: Any, api: AsyncClient
) -> None:
    (await api.get("/api/v1/runs")).raise_for_status()
    claim = read_key(tenant.keys["admin"])
    known = runtime.keys.find(claim)
    async with runtime.sessions.tenant(tenant.id) as session:
        assert await revoke_key(session, known.key_id)
    runtime.keys.remember(claim, known, datetime.now(UTC))  # five seconds later
    assert (await api.get("/api/v1/runs")).status_code == 401
