"""An installation made of real processes, any of which can be killed: PostgreSQL, API, workers."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx2
import psutil

from memory_api.auth.identity import KeyScope
from memory_api.auth.queries import create_key, create_tenant
from memory_api.core.db import Sessions, open_engine
from memory_api.core.ids import new_id, to_tenant_id
from memory_api.core.migrations import upgrade
from memory_api.embedded.provisioning import provision_database
from memory_api.embedded.server import EmbeddedPostgres
from tests.support.forked_processes import ForkedProcess, start_command
from tests.support.paths import ROOT

PATIENCE = 60.0
"""Seconds after which what must happen did not."""
LEASE = 3.0


def until(condition: Callable[[], object], what: str, *, every: float = 0.05) -> None:
    """Wait for something that must happen; errors of a connection count as not yet."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (OSError, httpx2.HTTPError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pass
        time.sleep(every)
    raise AssertionError(f"{what} did not happen in {PATIENCE:g} s")


def version_environment(folder: Path) -> dict[str, str]:
    """Makes Python import the version whose files are in a folder."""
    return {"PYTHONPATH": f"{folder}:{folder / 'apps'}:{folder / 'sdk'}"}


def server_module(folder: Path) -> str:
    """The package of the version in a folder: it was `apps.memory_api` once."""
    return "apps.memory_api" if (folder / "apps/__init__.py").exists() else "memory_api"


@dataclass(frozen=True)
class Tenant:
    id: UUID
    key: str


@dataclass
class Installation:
    """`api` and the workers run as `hansei serve` and `hansei worker` do; PostgreSQL is the
    embedded one, as durable as a user's."""

    folder: Path
    pg: EmbeddedPostgres = field(init=False)
    port: int = field(init=False)
    processes: dict[str, ForkedProcess | subprocess.Popen[bytes]] = field(default_factory=dict)
    extra: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pg = EmbeddedPostgres(self.folder / "pg", conf={"shared_buffers": "64MB"})
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.pg.start()
        asyncio.run(provision_database(self.pg))
        self.migrate()
        self.run("api")
        self.run("worker")
        self.await_ready()

    def start_version(self, folder: Path) -> None:
        """Start the version whose files are in a folder, on the database that it creates."""
        self.pg.start()
        asyncio.run(provision_database(self.pg))
        code = "import sys, asyncio; from memory_api.core.migrations import upgrade;"
        url = self.pg.url("hansei_owner")
        subprocess.run(
            [sys.executable, "-c", f"{code} asyncio.run(upgrade(sys.argv[1]))", url],
            cwd=folder,
            env=os.environ | version_environment(folder),
            check=True,
        )
        for name in ("api", "worker"):
            self.run(name, version_environment(folder), cwd=folder)
        self.await_ready()

    def migrate(self) -> None:
        """Migrate to the newest revision of this version."""
        asyncio.run(upgrade(self.pg.url("hansei_owner")))

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        self.pg.destroy()

    def tenant(self) -> Tenant:
        """A new one, with a key that may do everything."""
        return asyncio.run(self._tenant())

    async def _tenant(self) -> Tenant:
        slug = f"t-{new_id()}"
        found = to_tenant_id(slug)
        sessions = Sessions(open_engine(self.pg.url("hansei_owner"), pool_size=1))
        async with sessions.for_tenant(found) as session:
            await create_tenant(session, slug)
            _, key = await create_key(session, scopes=[KeyScope.ADMIN], name="faults")
        await sessions.close()
        return Tenant(found, key.text)

    def run(self, name: str, env: Mapping[str, str] | None = None, *, cwd: Path = ROOT) -> None:
        """Start `api`, or a worker of any other name, again with what it was given before. The code
        in `cwd` is run.
        """
        assert name not in self.processes
        self.extra[name] = dict(env) if env is not None else self.extra.get(name, {})
        api = ["serve", "--processes", "1", "--port", str(self.port)]
        what = api if name == "api" else ["worker"]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "DATABASE_URL": self.pg.url("hansei_app"),
            "HANSEI_WORKER_URL": self.pg.url("hansei_worker"),
            "HANSEI_LEASE_SECONDS": str(LEASE),
            "HANSEI_MAX_ATTEMPTS": "20",
            "HANSEI_LOG_FORMAT": "json",
            **self.extra[name],
        }
        log = self.folder / f"{name}.log"
        if cwd == ROOT and "LD_PRELOAD" not in environment:
            self.processes[name] = start_command(what, environment, log)
            return
        with log.open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", server_module(Path(cwd)), *what],
                cwd=cwd,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def run_again(self, env: Mapping[str, str]) -> None:
        """API and worker with other settings."""
        for name in ("api", "worker"):
            self.kill(name)
            self.run(name, env)
        self.await_ready()

    def kill(self, name: str) -> None:
        """kill -9; also of one that is stopped."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def has_ended(self, name: str) -> bool:
        return self.processes[name].poll() is not None

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    def resident(self, name: str) -> int:
        """Bytes of memory that a process and its children use."""
        process = psutil.Process(self.processes[name].pid)
        return sum(p.memory_info().rss for p in (process, *process.children(recursive=True)))

    def kill_postgres(self) -> None:
        """kill -9 of the postmaster; its backends notice and leave."""
        victim = self._postmaster()
        victim.kill()
        with suppress(psutil.NoSuchProcess):
            victim.wait(PATIENCE)

    @contextmanager
    def stopped_postgres(self) -> Iterator[None]:
        """SIGSTOP of the postmaster and its backends: connections stay open, nothing answers."""
        postmaster = self._postmaster()
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def data_folder(self) -> Path:
        """The files of the cluster."""
        pointer = self.folder / "pg" / "postgres-home"  # root's cluster lives elsewhere
        own = self.folder / "pg" / "postgres"
        home = Path(pointer.read_text().strip()) if pointer.exists() else own
        return home / "data"

    def _postmaster(self) -> psutil.Process:
        return psutil.Process(int((self.data_folder() / "postmaster.pid").read_text().split()[0]))

    def move_database(self, tablespace: str) -> None:
        """Move all tables to a tablespace. API and workers must not run."""

        async def move() -> None:
            connection = await asyncpg.connect(self.pg.url("postgres", "postgres"))
            try:
                await connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = 'hansei'"
                )
                await connection.execute(f"alter database hansei set tablespace {tablespace}")
            finally:
                await connection.close()

        asyncio.run(move())

    def ready(self) -> httpx2.Response:
        return httpx2.get(f"{self.url}/health/ready", timeout=10)

    def await_ready(self) -> None:
        until(lambda: self.ready().status_code == 200, "readiness", every=0.1)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows as the superuser sees them."""
        return asyncio.run(self._rows(statement, values))

    async def _rows(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.pg.url("postgres"))
        try:
            return [tuple(row) for row in await connection.fetch(statement, *values)]
        finally:
            await connection.close(timeout=5)

    def await_step(self, tenant: Tenant, kind: str) -> None:
        """Until the first run of a kind is at work, or was."""
        until(
            lambda: self.rows(
                "select from runs where tenant_id = $1 and kind = $2 and state <> 'queued' limit 1",
                tenant.id,
                kind,
            ),
            f"a run of the kind {kind}",
            every=0.005,
        )

    def await_drained(self, tenant: Tenant) -> None:
        """Until no run of a tenant waits or is worked on and no ticket of it is left."""
        try:
            until(lambda: not self._unfinished(tenant), "the end of all work")
        except AssertionError as error:
            error.add_note("\n".join(map(str, self._unfinished(tenant))))
            for name in self.processes:
                log = (self.folder / f"{name}.log").read_text(errors="replace")
                error.add_note(f"{name}: ended {self.has_ended(name)}\n{log[-3000:]}")
            raise

    def _unfinished(self, tenant: Tenant) -> list[tuple[Any, ...]]:
        return self.rows(
            "select 'run', id::text, kind, state, attempts, error, lease_owner,"
            " lease_until - clock_timestamp() from runs"
            " where tenant_id = $1 and state in ('queued', 'running')"
            " union all select 'ticket', id::text, slots, null, null, null,"
            " taken_by::text, due_at - clock_timestamp()"
            " from tickets where lane = $1",
            tenant.id,
        )
