"""What the benches share: a PostgreSQL server, an API and workers on this machine, an HTTP client,
times, CPU and memory of processes, and the report.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import platform
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psutil
from rich.console import Console
from rich.table import Table
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.auth.identity import KeyScope
from memory_api.auth.queries import create_key, create_tenant
from memory_api.core.db import Sessions, open_engine
from memory_api.core.ids import to_tenant_id
from memory_api.core.migrations import upgrade
from memory_api.embedded.ports import find_free_port
from memory_api.embedded.provisioning import provision_database
from memory_api.embedded.server import EmbeddedPostgres

DATABASE = "hansei"
ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
READ_BUFFER_BYTES = 2**23
"""Large enough for a whole playbook."""

# Servers and processes


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


@contextmanager
def measured_server() -> Generator[MeasuredServer]:
    """Start a server with a migrated, empty database, and delete it afterwards."""
    # A random loopback address, so that port 5432 is free.
    host = f"127.{random.randint(2, 250)}.{random.randint(2, 250)}.1"
    conf = {"listen_addresses": host, "shared_buffers": "2GB", "max_wal_size": "4GB"}
    with tempfile.TemporaryDirectory(prefix="hansei-bench-") as folder:
        server = EmbeddedPostgres(Path(folder) / "pg", conf=conf).start()
        try:
            measured = MeasuredServer(server, host)
            asyncio.run(provision_database(server, DATABASE))
            asyncio.run(upgrade(measured.url("hansei_owner")))
            yield measured
        finally:
            server.destroy()


async def connect(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(url, server_settings={"jit": "off"})


@asynccontextmanager
async def owner_session(server: MeasuredServer, slug: str) -> AsyncGenerator[AsyncSession]:
    """A transaction of the owner for a tenant."""
    sessions = Sessions(open_engine(server.url("hansei_owner"), pool_size=1))
    try:
        async with sessions.for_tenant(to_tenant_id(slug)) as session:
            yield session
    finally:
        await sessions.close()


async def new_tenant(server: MeasuredServer, slug: str) -> str:
    """Create a tenant and return an API key."""
    async with owner_session(server, slug) as session:
        await create_tenant(session, slug)
        _, key = await create_key(session, scopes=[KeyScope.ADMIN], name="bench")
    return key.text


@contextmanager
def api(
    server: MeasuredServer, settings: Mapping[str, str] | None = None, *, processes: int = 1
) -> Generator[int]:
    """Run `hansei serve` with these environment variables and yield its port."""
    port = find_free_port("127.0.0.1")
    command = ["serve", "--processes", str(processes), "--port", str(port)]
    with _process(server, command, settings or {}):
        for _ in range(1_200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        else:
            raise TimeoutError("The API did not start.")
        yield port


@contextmanager
def worker(server: MeasuredServer, settings: Mapping[str, str]) -> Generator[int]:
    """Run `hansei worker` with these environment variables and yield its process ID."""
    with _process(server, ["worker"], settings) as process:
        yield process.pid


@contextmanager
def _process(
    server: MeasuredServer, command: list[str], settings: Mapping[str, str]
) -> Generator[subprocess.Popen[bytes]]:
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


def api_process() -> psutil.Process:
    mine = psutil.Process().children()
    return next(one for one in mine if "serve" in one.cmdline())


def resident(process: psutil.Process) -> float:
    """Megabytes."""
    return process.memory_info().rss / 2**20


class CpuClock:
    """The CPU time of processes, in milliseconds. The kernel counts it in nanoseconds."""

    def __init__(self, processes: Callable[[], Sequence[psutil.Process]]) -> None:
        self.processes = processes

    def read(self) -> float:
        total = 0.0
        for process in self.processes():
            for thread in process.threads():
                path = f"/proc/{process.pid}/task/{thread.id}/schedstat"
                with open(path, encoding="ascii") as file:
                    total += int(file.read().split()[0]) / 1e6
        return total


# Requests


def send(port: int, key: str, body: bytes, reflect: str) -> dict[str, Any]:
    """Send traces as NDJSON in one request, as the SDK or curl would send a file."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(
        "POST",
        f"/api/v1/traces?reflect={reflect}",
        body,
        {"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"},
    )
    response = connection.getresponse()
    result = json.loads(response.read())
    connection.close()
    if response.status != 200 or result.get("rejected_count"):
        raise RuntimeError(f"{response.status}: {str(result)[:300]}")
    return result


class Caller:
    """One persistent connection to the API. It does little, so that it does not affect the measured
    times.
    """

    def __init__(self, port: int, key: str) -> None:
        self.port, self.key = port, key
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, payload: bytes = b"") -> bytes:
        """Send a request and return the body. Raises RuntimeError if the status is not 2xx."""
        if self.streams is None:
            self.streams = await asyncio.open_connection(
                "127.0.0.1", self.port, limit=READ_BUFFER_BYTES
            )
        reader, writer = self.streams
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: hansei\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self.key}\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        writer.write(head.encode() + payload)
        head_bytes = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head_bytes.split(b"content-length:")[1].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        if not head_bytes.startswith(b"http/1.1 2"):
            raise RuntimeError(f"{head_bytes.splitlines()[0]!r}: {answer[:300]!r}")
        return answer

    async def close(self) -> None:
        if self.streams:
            self.streams[1].close()
            await self.streams[1].wait_closed()


# Times

Call = Callable[[int], Awaitable[object]]
"""Executes the n-th call."""


@dataclass(frozen=True)
class Spread:
    """Milliseconds."""

    p50: float
    p95: float

    def __str__(self) -> str:
        return f"{self.p50:.2f} / {self.p95:.2f}"


async def spread(call: Call, times: int, *, warm: int = 8) -> Spread:
    """Time sequential calls of one caller, after `warm` warm-up calls."""
    for n in range(warm):
        await call(n)
    return _spread([await _taken(call, n) for n in range(times)])


async def spread_alternating(call: Call, other: Call, times: int) -> tuple[Spread, Spread]:
    """Time two kinds of calls alternately, so that the load of the machine is the same for both."""
    await spread(call, 1)
    both = [(await _taken(call, n), await _taken(other, n)) for n in range(times)]
    return _spread([first for first, _ in both]), _spread([second for _, second in both])


async def rate(callers: Sequence[Call], seconds: float) -> tuple[float, Spread]:
    """Return the calls per second of all concurrent callers, and the times of the calls."""
    end = time.perf_counter() + seconds
    taken: list[float] = []

    async def run(call: Call, first: int) -> None:
        n = first
        while time.perf_counter() < end:
            taken.append(await _taken(call, n))
            n += 1

    start = time.perf_counter()
    await asyncio.gather(*(run(call, 17 * i) for i, call in enumerate(callers)))
    return len(taken) / (time.perf_counter() - start), _spread(taken)


async def _taken(call: Call, n: int) -> float:
    start = time.perf_counter()
    await call(n)
    return (time.perf_counter() - start) * 1000


def _spread(taken: list[float]) -> Spread:
    taken.sort()
    return Spread(taken[len(taken) // 2], taken[min(len(taken) - 1, int(len(taken) * 0.95))])


# The report


class Report:
    """Tables by name, in the order of their declaration: printed, and written to
    `bench/results/NAME.md`.
    """

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._tables: dict[str, tuple[str, tuple[str, ...], list[list[str]]]] = {}

    def table(self, key: str, title: str, *columns: str) -> None:
        self._tables[key] = (title, columns, [])

    def row(self, key: str, *cells: object) -> None:
        """Add a row and print it, to show the progress of a long run."""
        row = [str(cell) for cell in cells]
        self._tables[key][2].append(row)
        Console(stderr=True).print(f"{key}: {' | '.join(row)}", highlight=False)

    def finish(self, *, write: bool = True) -> None:
        """Print all tables, and write the file if `write`."""
        console = Console(width=140)
        console.print(self.about)
        for title, columns, rows in self._tables.values():
            shown = Table(*columns, title=title)
            for row in rows:
                shown.add_row(*row)
            console.print(shown)
        if write:
            (RESULTS / f"{self.name}.md").write_text(self.text(), encoding="utf8")

    def text(self) -> str:
        """The file."""
        lines = [f"# bench: {self.name}", "", self.about]
        for title, columns, rows in self._tables.values():
            lines += ["", f"## {title}", "", _line(columns), _line(["---"] * len(columns))]
            lines += [_line(row) for row in rows]
        return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def describe_machine() -> str:
    """A sentence for a report. Call it before the load starts."""
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} at the start."
    )
