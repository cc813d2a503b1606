"""`hansei up`: everything on one machine with nothing else installed.

Database, schema, a tenant and its key, then API and worker as two processes under a supervisor.
This process stays light: what needs the service's imports runs in its children.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import typer

from apps.memory_api.commands.database import Urls, database
from apps.memory_api.commands.failing import Failed, one_line
from apps.memory_api.core.settings import Settings
from apps.memory_api.core.shipped import shipped
from apps.memory_api.embedded.errors import PortUnavailable
from apps.memory_api.embedded.ports import check_port
from apps.memory_api.embedded.supervisor import Child, Supervisor
from apps.memory_api.tenants.identity import read_key

TENANT = "default"
CREDENTIALS = "credentials.json"
API_DRAIN, WORKER_DRAIN = 6.0, 10.0
"""Seconds a process has between being asked to leave and being killed."""
ME = (sys.executable, "-m", "apps.memory_api")
WELCOME = """
Hansei is up.   API {url}   docs {url}/docs   data {folder}

  key   {key}

Try it:

curl -s {url}/api/v1/reflections/generate \\
  -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\
  -d '{{"outcome": "failure", "task_description": "Count the orders", "events": [
        {{"event_type": "tool_call", "tool_name": "query", "content": "SELECT * FROM orders"}},
        {{"event_type": "error_event", "content": "Query timeout after 30 seconds"}}]}}'

Ctrl-C stops it."""


@dataclass(frozen=True)
class Site:
    """Where this installation lives: its address, and its folder for database and key."""

    host: str
    port: int
    folder: Path
    own_database: bool

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def options(self) -> list[str]:
        """How a child finds the same database."""
        return ["--data-dir", str(self.folder)] if self.own_database else []


def run(host: str, port: int, data_dir: Path | None, json: bool) -> None:
    with one_line():
        drained = _up(Settings.load(), host, port, data_dir, json)
    sys.exit(0 if drained else 1)


def _up(settings: Settings, host: str, port: int, data_dir: Path | None, json: bool) -> bool:
    own = data_dir is not None or settings.database_url is None
    folder = (data_dir or settings.data_dir).expanduser().resolve()
    site = Site(host, port, folder, own)
    try:
        check_port(host, port)
    except PortUnavailable as error:
        raise Failed(f"{error}. Choose another with --port.") from error
    with database(settings, folder if own else None) as urls:
        key = _prepare(site, urls)
        return asyncio.run(_keep_up(site, urls, key, json))


def _prepare(site: Site, urls: Urls) -> str:
    """The newest schema, the default tenant and a key that works."""
    if urls.owner is None:
        return _stored_key(site) or ""
    key = _stored_key(site)
    if asyncio.run(_is_current(urls.owner)) and key and asyncio.run(_is_known(urls.owner, key)):
        return key
    key = str(jsonlib.loads(_child(site, "prepare", TENANT))["key"])
    _store_key(site, key)
    return key


async def _is_current(owner_url: str) -> bool:
    """Whether the newest migration has run: its file's name starts with the revision."""
    newest = max(path.name for path in shipped("migrations").glob("versions/[0-9]*.py"))
    connection: asyncpg.Connection = await asyncpg.connect(owner_url)
    try:
        found = await connection.fetchval("select version_num from alembic_version")
    except asyncpg.UndefinedTableError:
        return False
    finally:
        await connection.close()
    return newest.startswith(f"{found}_")


async def _is_known(owner_url: str, key: str) -> bool:
    """Whether this database knows the stored key: the folder may have been given a new database."""
    tenant_id, secret_hash = read_key(key)
    connection: asyncpg.Connection = await asyncpg.connect(owner_url)
    try:
        async with connection.transaction():
            await connection.execute(f"set local hansei.tenant_id = '{tenant_id}'")
            found = await connection.fetchval(
                "select 1 from api_keys where tenant_id = $1 and secret_hash = $2"
                " and revoked_at is null",
                tenant_id,
                secret_hash,
            )
    finally:
        await connection.close()
    return found is not None


def _child(site: Site, *command: str) -> str:
    """Run one of our own commands and answer what it printed. Raises `Failed` with its
    complaint."""
    done = subprocess.run([*ME, *command, *site.options], capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stderr.strip().removeprefix("hansei: ") or f"{command[0]} failed")
    return done.stdout


async def _keep_up(site: Site, urls: Urls, key: str, json: bool) -> bool:
    supervisor = Supervisor(
        [
            Child(
                "api",
                [*ME, "serve", "--host", site.host, "--port", str(site.port), *site.options],
                drain_seconds=API_DRAIN,
            ),
            Child("worker", [*ME, "worker", *site.options], drain_seconds=WORKER_DRAIN),
        ],
        report=lambda line: typer.echo(f"hansei: {line}", err=True),
        patrol=_patrol(urls),
    )
    announcing = asyncio.create_task(_announce(site, urls, key, json))
    try:
        return await supervisor.run()
    finally:
        announcing.cancel()


def _patrol(urls: Urls) -> Callable[[], Awaitable[object]] | None:
    """Bring the embedded server back when it has died."""
    if urls.embedded is None:
        return None
    server = urls.embedded

    async def look() -> None:
        await asyncio.to_thread(server.start)

    return look


async def _announce(site: Site, urls: Urls, key: str, json: bool) -> None:
    """Say where everything is, once it answers."""
    await asyncio.to_thread(_await_answer, f"{site.url}/health/ready")
    if json:
        told = {"url": site.url, "api_key": key, "tenant": TENANT, "database_url": urls.app}
        typer.echo(jsonlib.dumps(told))
    else:
        typer.echo(WELCOME.format(url=site.url, key=key, folder=site.folder))
    sys.stdout.flush()


def _await_answer(url: str) -> None:
    """Wait until the API says that it is ready. Runs in a thread, which ends with the process."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:  # not yet
            time.sleep(0.05)


def _stored_key(site: Site) -> str | None:
    try:
        return str(jsonlib.loads((site.folder / CREDENTIALS).read_text())["api_key"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _store_key(site: Site, key: str) -> None:
    """Where the CLI and the SDK find it; readable by its owner alone."""
    site.folder.mkdir(parents=True, exist_ok=True)
    told = {"url": site.url, "api_key": key, "tenant": TENANT}
    fresh = site.folder / f"{CREDENTIALS}.new"
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(jsonlib.dumps(told, indent=2) + "\n")
    fresh.replace(site.folder / CREDENTIALS)
