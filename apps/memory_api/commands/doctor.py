"""`hansei doctor`: what is wrong, and how to mend it."""

from __future__ import annotations

import asyncio
import json as jsonlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from apps.memory_api.commands.database import Urls, database
from apps.memory_api.commands.failing import Failed, one_line
from apps.memory_api.commands.finding import Finding
from apps.memory_api.commands.look_memories import look_at_memories
from apps.memory_api.commands.look_model import look_at_model
from apps.memory_api.core.away import reason
from apps.memory_api.core.db import Sessions, open_engine
from apps.memory_api.core.errors import HanseiError
from apps.memory_api.core.migrate import head
from apps.memory_api.core.settings import Settings
from apps.memory_api.runtime import open_runtime

ROLE = text(
    "select current_user, rolsuper or rolbypassrls, "
    "(select count(*) from pg_class c where c.relowner = r.oid) "
    "from pg_roles r where rolname = current_user"
)
REVISION = text("select version_num from alembic_version")
EXTENSION = text("select extversion from pg_extension where extname = 'vector'")
LATE = text(
    "select count(*) from pgqueuer where status = 'queued' "
    "and execute_after < now() - interval '1 minute'"
)


Check = Callable[[Settings, Urls], Awaitable[Finding | Sequence[Finding]]]


def run(data_dir: Path | None, json: bool) -> None:
    with one_line():
        settings = Settings.load()
        try:
            with database(settings, data_dir) as urls:
                findings = asyncio.run(look(settings, urls))
        except Failed as error:
            findings = [Finding("database", False, str(error), "See the log it names.")]
    _tell(findings, json)
    sys.exit(0 if all(finding.well for finding in findings) else 1)


async def look(settings: Settings, urls: Urls) -> Sequence[Finding]:
    found: list[Finding] = []
    checks: Sequence[Check] = (
        _connection,
        _role,
        _extension,
        _schema,
        _queue,
        _embedder,
        _memories,
        _model,
    )
    for check in checks:
        try:
            one = await check(settings, urls)
            found += [one] if isinstance(one, Finding) else one
        except (SQLAlchemyError, HanseiError, OSError, ValueError) as error:
            name = check.__name__.strip("_")
            found.append(Finding(name, False, reason(error), _MEND[name]))
            if check is _connection:
                break
    return found


_MEND = {
    "connection": "Is the server up, and DATABASE_URL right?",
    "role": "Connect as hansei_app, which owns nothing (docs/operations.md).",
    "extension": "As a superuser: create extension vector;",
    "schema": "Run `hansei migrate`.",
    "queue": "Run `hansei migrate`, then start `hansei worker`.",
    "embedder": "Look at HANSEI_EMBEDDING_PROVIDER and its key.",
    "memories": "Run `hansei migrate`.",
    "model": "Look at HANSEI_LLM_PROVIDER, HANSEI_LLM_MODEL and the provider's key.",
}


async def _ask(url: str, statement: object) -> Sequence[object]:
    sessions = Sessions(open_engine(url, pool_size=1, codecs=False))
    try:
        async with sessions.shared() as session:
            return tuple((await session.execute(statement)).one_or_none() or ())  # type: ignore[call-overload]
    finally:
        await sessions.close()


async def _connection(settings: Settings, urls: Urls) -> Finding:
    row = await _ask(urls.app, text("select current_setting('server_version')"))
    return Finding("connection", True, f"PostgreSQL {row[0]}")


async def _role(settings: Settings, urls: Urls) -> Finding:
    user, privileged, owned = await _ask(urls.app, ROLE)
    well = not privileged and owned == 0
    found = f"{user} owns nothing and cannot bypass row-level security"
    if not well:
        found = f"{user} could see past row-level security"
    return Finding("role", well, found, "" if well else _MEND["role"])


async def _extension(settings: Settings, urls: Urls) -> Finding:
    row = await _ask(urls.app, EXTENSION)
    if not row:
        return Finding("extension", False, "pgvector is not installed", _MEND["extension"])
    return Finding("extension", True, f"pgvector {row[0]}")


async def _schema(settings: Settings, urls: Urls) -> Finding:
    row = await _ask(urls.owner or urls.app, REVISION)
    now, wanted = (str(row[0]) if row else "nothing"), head()
    return Finding("schema", now == wanted, f"at {now}", "" if now == wanted else _MEND["schema"])


async def _queue(settings: Settings, urls: Urls) -> Finding:
    row = await _ask(urls.app, LATE)
    late = int(str(row[0]))
    found = f"{late} jobs wait for more than a minute" if late else "nothing waits"
    return Finding("queue", not late, found, "Start a worker: `hansei worker`." if late else "")


async def _embedder(settings: Settings, urls: Urls) -> Finding:
    async with open_runtime(settings, urls.app) as runtime:
        vector = await runtime.embedder.embed_query("hello")
        return Finding("embedder", True, f"{runtime.embedder.model}, {len(vector)} dimensions")


async def _memories(settings: Settings, urls: Urls) -> Sequence[Finding]:
    known = settings.model_copy(update={"owner_url": urls.owner})
    async with open_runtime(known, urls.worker) as runtime:
        return await look_at_memories(runtime)


async def _model(settings: Settings, urls: Urls) -> Finding:
    return await look_at_model(settings)


def _tell(findings: Sequence[Finding], json: bool) -> None:
    if json:
        typer.echo(jsonlib.dumps([asdict(finding) for finding in findings], ensure_ascii=False))
        return
    console = Console(highlight=False, soft_wrap=True)
    for one in findings:
        mark = "[green]well[/]" if one.well else "[red]wrong[/]"
        console.print(f"{mark:<16} {one.name:<12} ", end="")
        console.print(one.found, markup=False)
        if one.mend:
            console.print(f"       → {one.mend}", markup=False)
