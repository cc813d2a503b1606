"""A PostgreSQL server, an API and workers for measurements, over TCP on this machine."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import psutil

from memory_api.core.migrations import upgrade
from memory_api.embedded.provisioning import provision_database
from memory_api.embedded.server import EmbeddedPostgres

DATABASE = "hansei"
ROOT = Path(__file__).parents[1]


class MeasuredServer:
    """Provides URLs by role: `postgres`, `hansei_owner`, `hansei_app`, `hansei_worker`."""

    def __init__(self, server: EmbeddedPostgres, host: str) -> None:
        self._server = server
        self._host = host

    def url(self, role: str) -> str:
        """The URL of a role over TCP."""
        parts = urlsplit(self._server.url(role, DATABASE))
        login = parts.netloc.rsplit("@", 1)[0]
        return f"postgresql://{login}@{self._host}:5432/{DATABASE}"

    async def cpu_seconds(self) -> float:
        """CPU time of all processes of the server since its start."""
        connection = await connect(self.url("postgres"))
        backend: int = await connection.fetchval("select pg_backend_pid()")
        postmaster = psutil.Process(backend).parent()
        await connection.close()
        assert postmaster is not None
        ended = postmaster.cpu_times()  # of processes that have ended, too
        return sum(ended[:4]) + sum(map(process_cpu_seconds, postmaster.children()))


@contextmanager
def measured_server(conf: Mapping[str, str] | None = None) -> Iterator[MeasuredServer]:
    """Start a server with a migrated, empty database, and delete it afterwards. `conf` are more
    settings of PostgreSQL.
    """
    # A random loopback address, so that port 5432 is free.
    host = f"127.{random.randint(2, 250)}.{random.randint(2, 250)}.1"
    fixed = {"listen_addresses": host, "shared_buffers": "2GB", "max_wal_size": "4GB"}
    with tempfile.TemporaryDirectory(prefix="hansei-bench-") as folder:
        server = EmbeddedPostgres(Path(folder) / "pg", conf=fixed | dict(conf or {})).start()
        try:
            measured = MeasuredServer(server, host)
            asyncio.run(provision_database(server, DATABASE))
            asyncio.run(upgrade(measured.url("hansei_owner")))
            yield measured
        finally:
            server.destroy()


def process_cpu_seconds(process: psutil.Process) -> float:
    """CPU time of a process, user and system; 0 if it has ended."""
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


async def connect(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(url, server_settings={"jit": "off"})


@contextmanager
def api(
    server: MeasuredServer, settings: Mapping[str, str] | None = None, *, processes: int = 1
) -> Iterator[int]:
    """Run `hansei serve` with these environment variables and yield its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["serve", "--processes", str(processes), "--port", str(port)]
    with _process(server, command, settings or {}):
        _wait(port)
        yield port


@contextmanager
def worker(server: MeasuredServer, settings: Mapping[str, str]) -> Iterator[int]:
    """Run `hansei worker` with these environment variables and yield its process ID."""
    with _process(server, ["worker"], settings) as process:
        yield process.pid


@contextmanager
def _process(
    server: MeasuredServer, command: list[str], settings: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {
        "DATABASE_URL": server.url("hansei_app"),
        "HANSEI_WORKER_URL": server.url("hansei_worker"),
        "HANSEI_LOG_LEVEL": "error",
        **settings,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "memory_api", *command], cwd=ROOT, env=environment
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _wait(port: int) -> None:
    for _ in range(1_200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("The API did not start.")
