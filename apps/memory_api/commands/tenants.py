"""`hansei tenant` and `hansei key`: manage tenants and API keys, with the owner connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import select

from hansei.cli.terminal import print_json, print_line
from memory_api.auth import queries
from memory_api.auth.identity import KeyScope, parse_key
from memory_api.auth.tables import ApiKeyRow, TenantRow
from memory_api.commands.database import (
    CommandFailed,
    UsageError,
    exit_on_error,
    open_database,
)
from memory_api.core.db import Sessions, open_engine
from memory_api.core.ids import to_tenant_id
from memory_api.core.settings import Settings
from memory_api.tenants.audit_log import record_audit_event, record_key_event


def create_tenant(name: str, data_dir: Path | None, json: bool) -> None:
    async def create(sessions: Sessions) -> None:
        tenant_id = to_tenant_id(name)
        async with sessions.for_tenant(tenant_id) as session:
            is_new = await queries.create_tenant(session, name)
            if is_new:
                await record_audit_event(session, "tenant.created", f"tenant:{name}", {})
        text = f"Created tenant {name}." if is_new else f"Tenant {name} already exists."
        print_result(json, {"id": str(tenant_id), "slug": name, "created": is_new}, text)

    run_as_owner(data_dir, create)


def list_tenants(data_dir: Path | None, json: bool) -> None:
    async def show(sessions: Sessions) -> None:
        async with sessions.without_tenant() as session:
            rows = (await session.scalars(select(TenantRow).order_by(TenantRow.slug))).all()
        tenants = [{"id": str(row.id), "slug": row.slug, "status": row.status} for row in rows]
        lines = (f"{t['id']}  {t['status']}  {t['slug']}" for t in tenants)
        print_result(json, tenants, "\n".join(lines) or "There are no tenants.")

    run_as_owner(data_dir, show)


def set_tenant_status(name: str, status: str, data_dir: Path | None) -> None:
    async def change(sessions: Sessions) -> None:
        async with sessions.for_tenant(to_tenant_id(name)) as session:
            row = await queries.set_tenant_status(session, status)
            if row is None:
                raise CommandFailed(f"Tenant '{name}' not found. `hansei tenant list` lists all.")
            action = "tenant.suspended" if status == "suspended" else "tenant.resumed"
            await record_audit_event(session, action, f"tenant:{row.slug}", {})
        print_line(f"Tenant {name} is {status}.")

    run_as_owner(data_dir, change)


def create_key(
    tenant: str,
    scopes: Sequence[str],
    project: str | None,
    name: str,
    days: int | None,
    data_dir: Path | None,
    json: bool,
) -> None:
    async def create(sessions: Sessions) -> None:
        async with sessions.for_tenant(to_tenant_id(tenant)) as session:
            if await queries.get_tenant(session) is None:
                raise CommandFailed(
                    f"Tenant '{tenant}' not found. Run `hansei tenant create {tenant}`."
                )
            row, key = await queries.create_key(
                session,
                scopes=[_parse_scope(scope) for scope in scopes],
                name=name,
                project_id=project,
                expires_at=datetime.now(UTC) + timedelta(days=days) if days else None,
            )
            await record_key_event(session, "key.created", row)
        print_result(json, _to_json(row) | {"key": key.text}, key.text)

    run_as_owner(data_dir, create)


def list_keys(tenant: str, data_dir: Path | None, json: bool) -> None:
    async def show(sessions: Sessions) -> None:
        async with sessions.for_tenant(to_tenant_id(tenant)) as session:
            keys = [_to_json(key) for key in await queries.list_keys(session)]
        lines = (
            f"{k['id']}  {','.join(k['scopes']):<12} {k['state']:<8} {_one_line(k['name'])}"
            for k in keys
        )
        print_result(json, keys, "\n".join(lines) or "This tenant has no API keys.")

    run_as_owner(data_dir, show)


def revoke_key(key: str, tenant: str | None, data_dir: Path | None) -> None:
    async def revoke(sessions: Sessions) -> None:
        if key.startswith("hsk_"):
            tenant_id, secret_hash = parse_key(key)
        elif tenant is None:
            raise UsageError("Pass --tenant NAME with the ID of a key.")
        else:
            tenant_id, secret_hash = to_tenant_id(tenant), None
        async with sessions.for_tenant(tenant_id) as session:
            keys = await queries.list_keys(session)
            found = [k for k in keys if secret_hash == k.secret_hash or str(k.id) == key]
            if not found or not await queries.revoke_key(session, found[0].id):
                raise CommandFailed("API key not found. Run `hansei key list` to see all keys.")
            await record_key_event(session, "key.revoked", found[0])
        print_line("Revoked the API key.")

    run_as_owner(data_dir, revoke)


@asynccontextmanager
async def owner_sessions(url: str) -> AsyncGenerator[Sessions]:
    """Open sessions with the owner role, which may create tenants and keys."""
    sessions = Sessions(open_engine(url, pool_size=1))
    try:
        yield sessions
    finally:
        await sessions.close()


def run_as_owner(data_dir: Path | None, action: Callable[[Sessions], Awaitable[None]]) -> None:
    async def run(url: str) -> None:
        async with owner_sessions(url) as sessions:
            await action(sessions)

    with exit_on_error():
        settings = Settings.load()
        if data_dir is None and settings.owner_url is not None:
            asyncio.run(run(settings.owner_url))
            return
        with open_database(settings, data_dir) as urls:
            asyncio.run(run(urls.require_owner()))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _parse_scope(name: str) -> KeyScope:
    try:
        return KeyScope(name)
    except ValueError:
        raise UsageError(
            f"'{name}' is not a valid scope. Use read, write, admin or operator."
        ) from None


def _to_json(key: ApiKeyRow) -> dict[str, Any]:
    is_expired = key.expires_at is not None and key.expires_at < datetime.now(UTC)
    state = "revoked" if key.revoked_at else "expired" if is_expired else "active"
    return {
        "id": str(key.id),
        "tenant_id": str(UUID(str(key.tenant_id))),
        "name": key.name,
        "scopes": key.scopes,
        "project_id": key.project_id,
        "state": state,
    }


def print_result(json: bool, value: object, text: str) -> None:
    print_json(value) if json else print_line(text)
