"""`hansei up`: starts Hansei on one machine, with the embedded PostgreSQL.

It starts the database, migrates it, creates a tenant and an API key, and runs the API and the
worker as supervised child processes. This process stays small: whatever needs the service's imports
runs in a child.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from hansei.cli.terminal import print_json, print_line, print_message
from hansei.credentials import Credentials, save_credentials
from memory_api.auth.identity import parse_key
from memory_api.commands.api_processes import (
    HANSEI_COMMAND,
    api_children,
    check_settings,
    default_process_count,
)
from memory_api.commands.database import (
    CommandFailed,
    DatabaseUrls,
    UsageError,
    exit_on_error,
    find_credentials,
    open_database,
)
from memory_api.core.resources import packaged_path, read_sql, schema_digest
from memory_api.core.settings import Settings
from memory_api.embedded.data_directory import PortUnavailable
from memory_api.embedded.ports import check_port, find_free_port
from memory_api.embedded.supervisor import ChildMisconfigured, ChildProcess, Supervisor

DEFAULT_TENANT = "default"
LOOPBACK = "127.0.0.1"
WORKER_DRAIN_SECONDS = 4.0
"""Time between the signal to stop and the kill of a process, in seconds. `hansei up` with its
database ends within 10 seconds. A run that is killed continues after the next start.
"""
READINESS_TIMEOUT_SECONDS = 10.0
READINESS_INTERVAL_SECONDS = 0.2
READINESS_REQUEST = b"GET /health/ready HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
WELCOME = """
Hansei is running.   API {url}   docs {url}/docs   console {url}/console

  data  {data}
  key   {key}   (admin: it may do everything in its tenant)

Try it: a run that corrects itself. Its strategy waits in the playbook `first` until a run that
differs in more than numbers teaches it too, or you confirm it.
`hansei playbook show first --status all` shows it.

curl -sw '\\n' {url}/api/v1/reflections/generate \\
  -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\
  -d '{{"playbook": "first", "task_description": "Count the sales", "outcome": "success",
        "events": [
        {{"event_type": "tool_call", "tool_name": "sql", "content": "SELECT * FROM sales"}},
        {{"event_type": "error_event", "content": "Query timeout after 30 seconds"}},
        {{"event_type": "tool_call", "tool_name": "sql", "content": "SELECT count(*) FROM sales"}},
        {{"event_type": "tool_response", "tool_name": "sql", "content": "1200"}}]}}'

Press Ctrl-C to stop."""


@dataclass(frozen=True)
class Installation:
    """The address and the data directory of this installation."""

    host: str
    port: int
    folder: Path
    has_embedded_database: bool
    worker_metrics_port: int | None

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def options(self) -> list[str]:
        """The command-line options with which a child uses the same database."""
        return ["--data-dir", str(self.folder)] if self.has_embedded_database else []

    @property
    def worker(self) -> ChildProcess:
        port = self.worker_metrics_port
        return ChildProcess(
            "worker",
            [*HANSEI_COMMAND, "worker", *self.options],
            env={} if port is None else {"HANSEI_WORKER_METRICS_PORT": str(port)},
            drain_seconds=WORKER_DRAIN_SECONDS,
        )

    def credentials(self, api_key: str) -> Credentials:
        """What the CLI and the SDK read."""
        port = self.worker_metrics_port
        metrics_url = None if port is None else f"http://{LOOPBACK}:{port}"
        return Credentials(self.url, api_key, DEFAULT_TENANT, metrics_url)


def run(host: str, port: int, data_dir: Path | None, processes: int | None, json: bool) -> None:
    with exit_on_error():
        settings = Settings.load()
        check_settings(settings)
        count = processes or default_process_count()
        was_drained = _up(settings, host, port, data_dir, count, json)
    sys.exit(0 if was_drained else 1)


def _up(
    settings: Settings, host: str, port: int, data_dir: Path | None, processes: int, json: bool
) -> bool:
    """Run until stopped. Returns whether the children finished their work."""
    is_embedded = data_dir is not None or settings.database_url is None
    folder = (data_dir or settings.data_dir).expanduser().resolve()
    metrics_port = _choose_worker_metrics_port(settings)
    installation = Installation(host, port, folder, is_embedded, metrics_port)
    try:
        check_port(host, port)
    except PortUnavailable as error:
        raise CommandFailed(f"{error} Choose another port with --port.") from error
    with open_database(settings, folder if is_embedded else None, create=True) as urls:
        key = _prepare_database(installation, urls)
        credentials = installation.credentials(key)
        try:
            with (
                _published(folder, credentials),
                api_children(host, port, processes, installation.options) as api,
            ):
                return asyncio.run(_supervise(installation, urls, api, credentials, json))
        except ChildMisconfigured as error:
            raise UsageError(f"{error} Correct the setting above and start again.") from error


@contextmanager
def _published(folder: Path, credentials: Credentials) -> Generator[None]:
    """Save the credentials for clients. At the end, put back those of another service of this
    folder that still runs.
    """
    if not credentials.api_key:
        yield
        return
    earlier = find_credentials(folder)
    if earlier and (earlier.url == credentials.url or not _answers(earlier.url)):
        earlier = None
    if earlier:
        print_message(
            f"hansei: {earlier.url} runs with this folder, too. Clients in this folder use"
            f" {credentials.url} until it ends, then {earlier.url} again."
        )
    save_credentials(folder, credentials)
    try:
        yield
    finally:
        if earlier and find_credentials(folder) == credentials and _answers(earlier.url):
            save_credentials(folder, earlier)


def _prepare_database(installation: Installation, urls: DatabaseUrls) -> str:
    """Migrate, create the default tenant, and return a valid API key; '' without the owner role."""
    key = _load_key(installation)
    if urls.owner is None:
        return key or ""
    if key and asyncio.run(_is_prepared(urls.owner, key)):
        return key
    return str(jsonlib.loads(_run_child(installation, "prepare", DEFAULT_TENANT))["key"])


def _choose_worker_metrics_port(settings: Settings) -> int | None:
    """The port on which `hansei top` finds the worker. With a metrics token and no port, none: the
    worker would listen on all addresses.
    """
    if settings.worker_metrics_port is not None or settings.metrics_token is not None:
        return settings.worker_metrics_port
    return find_free_port(LOOPBACK)


async def _is_prepared(owner_url: str, key: str) -> bool:
    """Whether the newest migration has run, from the files of this release, and the database has
    the stored key. It may be a new database. A migration's file is named after its revision.
    """
    statement = read_sql("core/catalog.sql", "schema_version")
    newest = max(path.stem for path in packaged_path("migrations").glob("versions/[0-9]*.py"))
    tenant_id, secret_hash = parse_key(key)
    connection: asyncpg.Connection = await asyncpg.connect(owner_url)
    try:
        if tuple(await connection.fetchrow(statement) or ()) != (newest, schema_digest()):
            return False
        async with connection.transaction():
            await connection.execute(f"set local hansei.tenant_id = '{tenant_id}'")
            found = await connection.fetchval(
                "select 1 from api_keys where tenant_id = $1 and secret_hash = $2"
                " and revoked_at is null",
                tenant_id,
                secret_hash,
            )
    except asyncpg.UndefinedTableError:
        return False
    finally:
        await connection.close()
    return found is not None


def _run_child(installation: Installation, *command: str) -> str:
    """Run a command of `hansei` and return its output. Raises `CommandFailed` with its error."""
    child = subprocess.run(
        [*HANSEI_COMMAND, *command, *installation.options], capture_output=True, text=True
    )
    if child.returncode:
        error = child.stderr.strip().removeprefix("hansei: ")
        raise CommandFailed(error or f"`hansei {command[0]}` failed.")
    return child.stdout


async def _supervise(
    installation: Installation,
    urls: DatabaseUrls,
    api: Sequence[ChildProcess],
    credentials: Credentials,
    json: bool,
) -> bool:
    is_api_ready = asyncio.Event()
    others = [*api[1:], installation.worker]
    supervisor = Supervisor(
        [api[0], *(replace(child, start_after=is_api_ready) for child in others)],
        report=lambda line: print_message(f"hansei: {line}"),
        health_check=_database_health_check(urls),
    )
    announcement = asyncio.create_task(
        _print_when_ready(installation, urls, credentials, json, is_api_ready)
    )
    try:
        return await supervisor.run()
    finally:
        announcement.cancel()


def _database_health_check(urls: DatabaseUrls) -> Callable[[], Awaitable[object]] | None:
    """Restarts the embedded PostgreSQL if it has died. None for another database."""
    if urls.embedded is None:
        return None
    server = urls.embedded

    async def ensure_started() -> None:
        await asyncio.to_thread(server.start)

    return ensure_started


async def _print_when_ready(
    installation: Installation,
    urls: DatabaseUrls,
    credentials: Credentials,
    json: bool,
    is_api_ready: asyncio.Event,
) -> None:
    """Print the addresses and the key once the first API process is ready. Only then the other
    processes start, because they would take CPU time from it; without a ready API after
    `READINESS_TIMEOUT_SECONDS`.
    """
    asyncio.get_running_loop().call_later(READINESS_TIMEOUT_SECONDS, is_api_ready.set)
    await _wait_until_ready(credentials.url)
    is_api_ready.set()
    if json:
        print_json(asdict(credentials) | {"database_url": urls.app})
    else:
        print_line(
            WELCOME.format(
                url=credentials.url,
                key=credentials.api_key,
                data=_describe_data(installation, urls),
            )
        )
    sys.stdout.flush()


def _describe_data(installation: Installation, urls: DatabaseUrls) -> str:
    """The folder, and that of the database if it is elsewhere, as under root."""
    database = urls.embedded.cluster_dir if urls.embedded else None
    if database is None or database.is_relative_to(installation.folder):
        return str(installation.folder)
    return f"{installation.folder}, database {database}"


async def _wait_until_ready(url: str) -> None:
    while True:
        try:
            async with asyncio.timeout(READINESS_TIMEOUT_SECONDS):
                if await _is_ready(url):
                    return
        except (OSError, TimeoutError):  # no process answers yet
            pass
        await asyncio.sleep(READINESS_INTERVAL_SECONDS)


def _answers(url: str) -> bool:
    """Whether a service is ready at this address."""

    async def ask() -> bool:
        async with asyncio.timeout(READINESS_TIMEOUT_SECONDS):
            return await _is_ready(url)

    try:
        return asyncio.run(ask())
    except (OSError, TimeoutError):
        return False


async def _is_ready(url: str) -> bool:
    """The request waits in the socket until the API accepts it, so usually one is enough. Unlike a
    request of `urllib` in a thread, it ends with Ctrl-C. Raises `OSError`.
    """
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    with closing(writer):
        writer.write(READINESS_REQUEST % address.netloc.encode())
        return b" 200 " in await reader.readline()


def _load_key(installation: Installation) -> str | None:
    stored = find_credentials(installation.folder)
    return stored.api_key if stored else None
