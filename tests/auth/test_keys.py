"""Keys in the database: only a live one of the claimed tenant opens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from sqlalchemy import text, update

from memory_api.auth import queries
from memory_api.auth.identity import KeyScope, generate_key
from memory_api.auth.tables import ApiKeyRow
from memory_api.core.ids import new_id


async def new_key(runtime, tenant, **more):
    async with runtime.sessions.for_tenant(tenant.id) as session:
        return await queries.create_key(session, scopes=[KeyScope.READ], **more)


async def opens(runtime, tenant, secret_hash: bytes) -> bool:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        return await queries.get_valid_key(session, secret_hash) is not None


async def test_key_is_valid_for_its_tenant_only(runtime, make_tenant) -> None:
    mine, other = await make_tenant(), await make_tenant()
    _, key = await new_key(runtime, mine)
    assert await opens(runtime, mine, key.secret_hash)
    assert not await opens(runtime, other, key.secret_hash)
    assert not await opens(runtime, mine, generate_key(mine.id).secret_hash)


async def test_revoked_key_is_invalid_and_keeps_first_revocation_time(runtime, tenant) -> None:
    row, key = await new_key(runtime, tenant)
    times = []
    for _ in range(2):
        async with runtime.sessions.for_tenant(tenant.id) as session:
            assert await queries.revoke_key(session, row.id)
        async with runtime.sessions.for_tenant(tenant.id) as session:
            kept = {k.id: k.revoked_at for k in await queries.list_keys(session)}
        times.append(kept[row.id])
    assert times[0] == times[1] is not None
    assert not await opens(runtime, tenant, key.secret_hash)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert not await queries.revoke_key(session, new_id())


@pytest.mark.parametrize(("hours", "alive"), [(1, True), (-1, False)])
async def test_key_expires(runtime, tenant, hours: int, alive: bool) -> None:
    moment = datetime.now(UTC) + timedelta(hours=hours)
    _, key = await new_key(runtime, tenant, expires_at=moment)
    assert await opens(runtime, tenant, key.secret_hash) is alive


async def test_keys_of_closed_tenant_are_invalid(runtime, owner, tenant) -> None:
    _, key = await new_key(runtime, tenant)
    async with owner.for_tenant(tenant.id) as session:
        statement = text("update tenants set status = 'closed' where id = :id")
        await session.execute(statement, {"id": tenant.id})
    assert not await opens(runtime, tenant, key.secret_hash)


async def test_last_use_is_stored_once_a_minute(app, runtime, api, tenant) -> None:
    async def used() -> list[datetime]:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            keys = await queries.list_keys(session)
            return [key.last_used_at for key in keys if key.last_used_at]

    (await api.get("/api/v1/traces")).raise_for_status()
    first = await used()
    assert len(first) == 1
    (await api.get("/api/v1/traces")).raise_for_status()
    assert await used() == first
    async with runtime.sessions.for_tenant(tenant.id) as session:
        earlier = datetime.now(UTC) - timedelta(minutes=2)
        await session.execute(
            update(ApiKeyRow).where(ApiKeyRow.tenant_id == tenant.id).values(last_used_at=earlier)
        )
        for key in await queries.list_keys(session):
            app.state.api.key_cache.remove(key.id)  # five seconds later
    (await api.get("/api/v1/traces")).raise_for_status()
    assert max(await used()) >= first[0]


async def test_tenant_is_created_once(owner, tenant) -> None:
    async with owner.for_tenant(tenant.id) as session:
        assert not await queries.create_tenant(session, tenant.slug)
        made = await queries.get_tenant(session)
    assert made is not None
    assert (made.id, made.slug, made.status) == (tenant.id, tenant.slug, "active")


async def test_database_does_not_contain_secret(server, database, tenant) -> None:
    connection = await asyncpg.connect(database.url("postgres"))
    try:
        rows = await connection.fetchval("select string_agg(k::text, ' ') from api_keys k")
    finally:
        await connection.close()
    assert rows
    for key in tenant.keys.values():
        assert key.split("_", 2)[2] not in rows


async def test_list_of_keys_is_paged(api, tenant) -> None:
    for n in range(4):
        (await api.post("/api/v1/keys", json={"name": f"n{n}"})).raise_for_status()
    whole = (await api.get("/api/v1/keys", params={"limit": 200})).json()
    assert whole["next_cursor"] is None
    found, cursor = [], None
    while cursor is not None or not found:
        asked = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = (await api.get("/api/v1/keys", params=asked)).json()
        assert len(page["items"]) <= 3
        found += page["items"]
        cursor = page["next_cursor"]
    assert [key["id"] for key in found] == [key["id"] for key in whole["items"]]


async def test_key_of_a_project_lists_and_revokes_its_own(api, tenant, make_tenant) -> None:
    body = {"name": "bound", "scopes": ["admin"], "project_id": "one"}
    bound = (await api.post("/api/v1/keys", json=body)).json()
    other = (await api.post("/api/v1/keys", json={"name": "other"})).json()
    headers = {"Authorization": f"Bearer {bound['key']}"}
    items = (await api.get("/api/v1/keys", headers=headers)).json()["items"]
    assert [key["id"] for key in items] == [bound["id"]]
    assert (await api.delete(f"/api/v1/keys/{other['id']}", headers=headers)).status_code == 404
    assert (await api.delete(f"/api/v1/keys/{bound['id']}", headers=headers)).status_code == 204
