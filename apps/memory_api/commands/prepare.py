"""The first step of `hansei up`, in a process of its own: the supervisor need not hold what this
imports."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import typer

from apps.memory_api.commands.database import Urls, database
from apps.memory_api.commands.failing import one_line
from apps.memory_api.commands.migrate import bring_up_to_date
from apps.memory_api.commands.tenants import owner_sessions
from apps.memory_api.core.settings import Settings
from apps.memory_api.tenants.identity import Access, tenant_id_of
from apps.memory_api.tenants.queries import create_key, create_tenant


def run(name: str, data_dir: Path | None) -> None:
    with one_line(), database(Settings.load(), data_dir) as urls:
        key = asyncio.run(_prepare(urls, name))
    typer.echo(json.dumps({"key": key}))


async def _prepare(urls: Urls, name: str) -> str:
    await bring_up_to_date(urls)
    async with (
        owner_sessions(urls.need_owner()) as sessions,
        sessions.tenant(tenant_id_of(name)) as session,
    ):
        await create_tenant(session, name)
        _, key = await create_key(session, scopes=[Access.ADMIN], name="hansei up")
    return key.text
