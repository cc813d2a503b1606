"""Searches of a tenant while 200 clients send wrong keys, and while slow readers take a trace."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import platform
import random
import socket
import time
from collections import Counter, deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from typing import Annotated, Any

import numpy as np
import psutil
import typer

from bench.background_work import resident
from bench.http_client import Caller
from bench.ingest import api_process, new_tenant
from bench.report import Report
from bench.server import MeasuredServer, api, measured_server

WRONG_KEYS = 200
READERS = 20
TRACE_BYTES = 20_000_000
EVENT_BYTES = 500_000
BULLETS = 200
RATE = 20
"""Searches per second of the other tenant."""
CONNECTIONS = 4
"""Open connections of the other tenant while its searches are answered in time."""
MAX_RESIDENT_MB = 400


@dataclass
class Measured:
    """Searches of the other tenant: milliseconds, and how many failed."""

    times: list[float]
    failed: int

    def quantiles(self) -> str:
        p50, p95 = np.percentile(self.times, (50, 95))
        return f"{p50:.0f} / {p95:.0f} / {max(self.times):.0f}"


async def search_steadily(port: int, key: str, seconds: float) -> Measured:
    """Search at a steady rate. A late answer does not delay the next search."""
    measured = Measured([], 0)
    idle = deque(Caller(port, key) for _ in range(CONNECTIONS))
    body = {"query_text": "refund the order of a customer", "top_k": 5}

    async def search(due: float) -> None:
        caller = idle.popleft() if idle else Caller(port, key)
        try:
            await caller.search(body)
            measured.times.append((time.perf_counter() - due) * 1000)
        except (RuntimeError, OSError, EOFError):
            measured.failed += 1
            await caller.close()
            caller = Caller(port, key)
        if len(idle) < CONNECTIONS:
            idle.append(caller)
        else:  # the server closes a connection that nobody uses
            await caller.close()

    end = time.perf_counter() + seconds
    due = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.create_task(search(due))
            due += 1 / RATE
    for caller in idle:
        await caller.close()
    return measured


@dataclass(frozen=True)
class WrongKeys:
    """Clients that send a request with a new wrong key as soon as the last one is answered."""

    port: int
    tenant_key: str
    """A valid key: the wrong ones name its tenant, so that only their secrets are wrong."""
    addresses: int
    """From how many addresses the clients connect."""

    def run(self, stop: Event, counts: Any) -> None:
        """In a process of its own."""
        os.nice(5)  # on other machines, the clients would not take the time of the service
        asyncio.run(self._run(stop, counts))

    async def _run(self, stop: Event, counts: Any) -> None:
        found: Counter[str] = Counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(WRONG_KEYS):
                tasks.create_task(self._client(number, stop, found))
        counts.put(found)

    async def _client(self, number: int, stop: Event, found: Counter[str]) -> None:
        address = f"127.0.1.{number % self.addresses + 1}"
        choice = random.Random(number)
        while not stop.is_set():
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self.port, local_addr=(address, 0)
                )
                try:
                    await self._ask(reader, writer, choice, stop, found)
                finally:
                    writer.close()

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        choice: random.Random,
        stop: Event,
        found: Counter[str],
    ) -> None:
        while not stop.is_set():
            wrong = self.tenant_key[:-24] + "".join(choice.choices("abcdefghijklmnop", k=24))
            head = (
                f"GET /api/v1/traces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {wrong}\r\n\r\n"
            )
            writer.write(head.encode())
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answer.split(b"content-length:")[1].split(b"\r\n")[0]))
            found[answer.split()[1].decode()] += 1


@contextmanager
def attack(clients: WrongKeys) -> Generator[Counter[str]]:
    """Run the clients. The counter has the answers by status when the block has ended."""
    context = multiprocessing.get_context("spawn")
    stop, counts = context.Event(), context.Queue()
    process = context.Process(target=clients.run, args=(stop, counts))
    process.start()
    found: Counter[str] = Counter()
    try:
        time.sleep(2)  # until they are connected
        yield found
    finally:
        stop.set()
        found.update(counts.get(timeout=60))
        process.join()


@contextmanager
def slow_readers(port: int, key: str, path: str) -> Generator[None]:
    """Clients that ask for a trace at once and read a kilobyte of the answer."""
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    readers: list[socket.socket] = []
    try:
        for _ in range(READERS):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            reader.connect(("127.0.0.1", port))
            reader.sendall(head)
            readers.append(reader)
        yield
        for reader in readers:
            reader.settimeout(60)
            assert reader.recv(1_024).startswith(b"HTTP/1.1 200"), "the trace is sent"
    finally:
        for reader in readers:
            reader.close()


def large_trace() -> bytes:
    line = "Order 4711 of the customer was refunded to the card that paid for it.\n"
    content = line * (EVENT_BYTES // len(line))
    events = [
        {"event_type": "tool_response", "tool_name": "shell", "content": f"{n} {content}"}
        for n in range(TRACE_BYTES // EVENT_BYTES)
    ]
    return json.dumps({"events": events}).encode()


async def send(port: int, key: str, path: str, body: bytes) -> Any:
    """Raises RuntimeError if the answer is not a success."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**23)
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Connection: close\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    )
    writer.write(body)
    head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
        raise RuntimeError(f"{head!r} {answer[:300]!r}")
    return json.loads(answer)


@dataclass
class Watched:
    """The API process and the tenant that searches."""

    report: Report
    port: int
    key: str
    seconds: float
    process: psutil.Process = field(default_factory=api_process)

    def row(self, meanwhile: str) -> None:
        """Measure the searches and the memory of the API meanwhile."""
        before = resident(self.process)
        most, found = asyncio.run(self._search())
        self.report.row(
            "figures", meanwhile, found.quantiles(), found.failed, f"{before:.0f} / {most:.0f}"
        )

    async def _search(self) -> tuple[float, Measured]:
        searching = asyncio.create_task(search_steadily(self.port, self.key, self.seconds))
        most = 0.0
        while not searching.done():
            most = max(most, resident(self.process))
            await asyncio.sleep(0.02)
        return most, await searching


def create_bullets(port: int, key: str) -> None:
    for number in range(BULLETS):
        bullet = {"content": f"Before refund {number}, check the role of account {number * 7}."}
        path = "/api/v1/playbooks/desk/bullets"
        asyncio.run(send(port, key, path, json.dumps(bullet).encode()))


def measure(report: Report, port: int, seconds: float, server: MeasuredServer) -> None:
    hostile, other = (asyncio.run(new_tenant(server, slug)) for slug in ("hostile", "other"))
    create_bullets(port, other)
    stored = asyncio.run(send(port, hostile, "/api/v1/traces?reflect=never", large_trace()))
    watched = Watched(report, port, other, seconds)
    watched.row("nobody")
    for addresses in (1, WRONG_KEYS):
        name = "one address" if addresses == 1 else f"{addresses} addresses"
        since = time.perf_counter()
        with attack(WrongKeys(port, hostile, addresses)) as found:
            watched.row(f"{WRONG_KEYS} clients with wrong keys from {name}")
        rate = found.total() / (time.perf_counter() - since)
        answers = ", ".join(f"{count:,} × {status}" for status, count in sorted(found.items()))
        report.row("answers", name, answers, f"{rate:.0f}")
    with slow_readers(port, hostile, f"/api/v1/traces/{stored['trace_id']}"):
        watched.row(f"{READERS} slow readers of a trace of {TRACE_BYTES // 1_000_000} MB")
    watched.row("nobody again")


def main(
    seconds: Annotated[float, typer.Option(help="Length of each measurement.")] = 20,
    short: Annotated[bool, typer.Option(help="Five seconds each, writes no file.")] = False,
) -> None:
    report = Report(
        "hostile_clients",
        f"One tenant searches {RATE} times per second, on one API process with the default limits,"
        " while clients of another tenant misbehave. The clients run on the same cores, with a"
        f" lower priority. {platform.machine()}, {os.cpu_count()} cores, Python"
        f" {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the start.",
    )
    report.table(
        *(
            "figures",
            f"Searches of another tenant; goals: p95 ≤ 100 ms, API ≤ {MAX_RESIDENT_MB} MB",
        ),
        *("meanwhile", "p50 / p95 / longest, ms", "failed", "API before / most, MB"),
    )
    report.table("answers", "Answers to wrong keys", "from", "answers", "per second")
    with measured_server() as server, api(server) as port:
        measure(report, port, 5 if short else seconds, server)
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
