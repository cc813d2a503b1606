"""`hansei tenant` and `hansei key`: administration on the owner's connection."""

from __future__ import annotations

import asyncio
import json as jsonlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import typer
from sqlalchemy import select

from apps.memory_api.commands.database import database
from apps.memory_api.commands.failing import Failed, WrongUsage, one_line
from apps.memory_api.core.db import Sessions, open_engine
from apps.memory_api.core.settings import Settings
from apps.memory_api.tenants import queries
from apps.memory_api.tenants.identity import Access, read_key, tenant_id_of
from apps.memory_api.tenants.tables import ApiKey, Tenant


def create_tenant(name: str, data_dir: Path | None, json: bool) -> None:
    async def make(sessions: Sessions) -> None:
        tenant_id = tenant_id_of(name)
        async with sessions.tenant(tenant_id) as session:
            made = await queries.create_tenant(session, name)
        told = "Made" if made else "There was already a"
        _tell(json, {"id": str(tenant_id), "slug": name, "created": made}, f"{told} tenant {name}.")

    _with_owner(data_dir, make)


def list_tenants(data_dir: Path | None, json: bool) -> None:
    async def show(sessions: Sessions) -> None:
        async with sessions.shared() as session:
            rows = (await session.scalars(select(Tenant).order_by(Tenant.slug))).all()
        found = [{"id": str(t.id), "slug": t.slug, "status": t.status} for t in rows]
        _tell(json, found, "\n".join(f"{t['id']}  {t['status']}  {t['slug']}" for t in found))

    _with_owner(data_dir, show)


def create_key(
    tenant: str,
    scopes: Sequence[str],
    project: str | None,
    name: str,
    days: int | None,
    data_dir: Path | None,
    json: bool,
) -> None:
    async def make(sessions: Sessions) -> None:
        async with sessions.tenant(tenant_id_of(tenant)) as session:
            if await queries.get_tenant(session) is None:
                raise Failed(f"There is no tenant '{tenant}': `hansei tenant create {tenant}`.")
            row, key = await queries.create_key(
                session,
                scopes=[_scope(scope) for scope in scopes],
                name=name,
                project_id=project,
                expires_at=datetime.now(UTC) + timedelta(days=days) if days else None,
            )
        _tell(json, _describe(row) | {"key": key.text}, key.text)

    _with_owner(data_dir, make)


def list_keys(tenant: str, data_dir: Path | None, json: bool) -> None:
    async def show(sessions: Sessions) -> None:
        async with sessions.tenant(tenant_id_of(tenant)) as session:
            found = [_describe(key) for key in await queries.list_keys(session)]
        rows = (
            f"{k['id']}  {','.join(k['scopes']):<12} {k['state']:<8} {k['name']}" for k in found
        )
        _tell(json, found, "\n".join(rows))

    _with_owner(data_dir, show)


def revoke_key(key: str, tenant: str | None, data_dir: Path | None) -> None:
    async def revoke(sessions: Sessions) -> None:
        if key.startswith("hsk_"):
            tenant_id, secret_hash = read_key(key)
        elif tenant is None:
            raise WrongUsage("Say --tenant with the id of a key.")
        else:
            tenant_id, secret_hash = tenant_id_of(tenant), None
        async with sessions.tenant(tenant_id) as session:
            keys = await queries.list_keys(session)
            found = [k.id for k in keys if secret_hash == k.secret_hash or str(k.id) == key]
            if not found or not await queries.revoke_key(session, found[0]):
                raise Failed("There is no such key.")
        typer.echo("Revoked.")

    _with_owner(data_dir, revoke)


@asynccontextmanager
async def owner_sessions(url: str) -> AsyncGenerator[Sessions]:
    """Sessions as the owner, who makes tenants and keys."""
    sessions = Sessions(open_engine(url, pool_size=1))
    try:
        yield sessions
    finally:
        await sessions.close()


def _with_owner(data_dir: Path | None, work: Callable[[Sessions], Awaitable[None]]) -> None:
    async def inside(url: str) -> None:
        async with owner_sessions(url) as sessions:
            await work(sessions)

    with one_line():
        settings = Settings.load()
        if data_dir is None and settings.owner_url is not None:
            asyncio.run(inside(settings.owner_url))
            return
        with database(settings, data_dir) as urls:
            asyncio.run(inside(urls.need_owner()))


def _scope(name: str) -> Access:
    try:
        return Access(name)
    except ValueError:
        raise WrongUsage(f"'{name}' is not a scope: read, write, admin or operator.") from None


def _describe(key: ApiKey) -> dict[str, Any]:
    expired = key.expires_at is not None and key.expires_at < datetime.now(UTC)
    state = "revoked" if key.revoked_at else "expired" if expired else "live"
    return {
        "id": str(key.id),
        "tenant_id": str(UUID(str(key.tenant_id))),
        "name": key.name,
        "scopes": key.scopes,
        "project_id": key.project_id,
        "state": state,
    }


def _tell(json: bool, value: object, text: str) -> None:
    typer.echo(jsonlib.dumps(value, ensure_ascii=False) if json else text)
