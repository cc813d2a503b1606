"""Searches, traces and learning of a tenant while another one does its worst, each way in turn."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import numpy as np
import typer
from sqlalchemy.engine import make_url

from bench.harness import (
    MeasuredServer,
    Report,
    api,
    api_process,
    connect,
    describe_machine,
    measured_server,
    new_tenant,
    owner_session,
    resident,
    worker,
)
from memory_api.analytics.queries import create_login
from memory_api.core.ids import to_tenant_id
from tests.support import hostile_receiver as hostile

SEARCHES_PER_SECOND, TRACES_PER_SECOND = 20, 1
MAX_RATIO = 2.0
PASSWORD = "a password of this bench"
LINE = "Order 4711 of the customer was refunded to the card that paid for it.\n"
TRACE = {
    "outcome": "failure",
    "task_description": "Refund the order of a customer",
    "events": [
        {"event_type": "tool_call", "tool_name": "refund", "content": "refund(4711)"},
        {"event_type": "error_event", "tool_name": "refund", "content": "order is closed"},
    ],
}
HEAVY_STATEMENTS = (
    "select pg_notify('tickets', 'x')",
    "select pg_advisory_lock(g) from generate_series(1, 25000) g",
    "select set_config('work_mem', '2GB', false)",
    "select count(*) from (select g from generate_series(1, 20000000) g order by md5(g::text)) s",
    "select count(*) from generate_series(1, 20000) a, generate_series(1, 20000) b",
)
RECEIVERS = (hostile.drip, hostile.send_endlessly, hostile.send_300_mb, hostile.send_gzip_bomb,
             hostile.inform_endlessly)  # fmt: skip


@dataclass(frozen=True)
class Tenant:
    port: int
    key: str
    login_url: str

    async def ask(
        self, method: str, path: str, body: bytes = b"", *, key: str = "", address: str = ""
    ) -> tuple[int, bytes]:
        """One request on a connection of its own: the status and the body."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=2**25, local_addr=(address, 0) if address else None
        )
        try:
            writer.write(
                f"{method} /api/v1/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nAuthorization: Bearer {key or self.key}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
            return int(head[9:12]), answer
        finally:
            writer.close()


Act = Callable[[Tenant, int], Awaitable[object]]


async def guess_keys(tenant: Tenant, number: int) -> None:
    """From 200 addresses; only the secret is wrong."""
    wrong = tenant.key[:-24] + "".join(random.choices("abcdefghijklmnop", k=24))
    await tenant.ask("GET", "traces", key=wrong, address=f"127.0.1.{number % 200 + 1}")


async def read_slowly(tenant: Tenant, _number: int) -> None:
    """A trace of 20 MB, a kilobyte a second."""
    line = LINE * (500_000 // len(LINE))
    events = [{"event_type": "tool_response", "tool_name": "sh", "content": line}] * 40
    _, made = await tenant.ask("POST", "traces?reflect=never", _json({"events": events}))
    reader, writer = await asyncio.open_connection("127.0.0.1", tenant.port, limit=1_024)
    path = f"/api/v1/traces/{json.loads(made)['trace_id']}"
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.key}\r\n\r\n"
    writer.write(head.encode())
    while await reader.read(1_024):  # noqa: ASYNC110 - reads
        await asyncio.sleep(1)


async def choose_receivers(tenant: Tenant, _number: int) -> None:
    """Webhooks whose receivers answer slowly, without end, or with gigabytes."""
    async with AsyncExitStack() as stack:
        hooks: list[str] = []
        for behavior in RECEIVERS:
            receiver = await stack.enter_async_context(hostile.hostile_receiver(behavior))
            _, made = await tenant.ask("POST", "webhooks", _json({"url": receiver.url}))
            hooks.append(json.loads(made)["id"])
        while True:
            for hook in hooks:
                await tenant.ask("POST", f"webhooks/{hook}/test")
            await asyncio.sleep(1)


async def run_statements(tenant: Tenant, number: int) -> None:
    """As a read-only login: locks, notifications, memory, temporary files, time."""
    connection = await asyncpg.connect(tenant.login_url)
    try:
        for statement in HEAVY_STATEMENTS[number % 5 :]:
            with suppress(asyncpg.PostgresError):
                await connection.execute(statement, timeout=20)
    finally:
        connection.terminate()


async def send_traces(tenant: Tenant, number: int) -> None:
    task = f"Refund order {number} {random.random()}"
    await tenant.ask("POST", "traces?reflect=always", _json(TRACE | {"task_description": task}))


async def send_large_bodies(tenant: Tenant, number: int) -> None:
    """A trace of 20 MB, a body of a million values, and one with a million levels."""
    line = LINE * (500_000 // len(LINE))
    large = _json(TRACE | {"events": [{"event_type": "error_event", "content": line}] * 40})
    bodies = large, b'{"events":[' + b"1," * 1_000_000 + b"1]}", b'{"events":' + b"[" * 1_000_000
    await tenant.ask("POST", "traces?reflect=always", bodies[number % 3])


async def upload_documents(tenant: Tenant, number: int) -> None:
    """A tag with a million attributes, and headings without end."""
    await tenant.ask("POST", "collections", _json({"name": "bad"}))
    body = (b"<a " + b"a=b " * 1_000_000 + b">x", b"# a\n" * 1_000_000)[number % 2]
    await tenant.ask("POST", f"collections/bad/documents?source={random.random()}.html", body)


WAYS: dict[str, tuple[Act, int]] = {
    "200 clients guess keys": (guess_keys, 200),
    "20 slow readers of 20 MB": (read_slowly, 20),
    "5 bad receivers of webhooks": (choose_receivers, 1),
    "4 BI logins: locks, NOTIFY, memory": (run_statements, 4),
    "8 clients send traces": (send_traces, 8),
    "4 clients send bodies of up to 20 MB": (send_large_bodies, 4),
    "2 clients upload documents": (upload_documents, 2),
}
"""What the hostile tenant does, and how many clients do it at once."""


def act_hostile(name: str, tenant: Tenant, count: Any) -> None:
    """In a process of its own, until it is ended."""
    os.nice(5)  # on other machines, the clients would not take the time of the service
    act, clients = WAYS[name]

    async def client(number: int) -> None:
        while True:
            with suppress(OSError, ValueError, KeyError, asyncpg.PostgresError, TimeoutError):
                await act(tenant, number)
            with count.get_lock():
                count.value += 1
            number += clients
            await asyncio.sleep(0)

    async def run() -> None:
        await asyncio.gather(*map(client, range(clients)))

    asyncio.run(run())


@contextmanager
def hostile_process(name: str, tenant: Tenant):
    context = multiprocessing.get_context("spawn")
    count = context.Value("q", 0)
    process = context.Process(target=act_hostile, args=(name, tenant, count))
    process.start()
    try:
        time.sleep(3)  # until they are connected
        yield count
    finally:
        process.terminate()
        process.join()


class Neighbor:
    """The other tenant: what it does at a steady rate, and how long that takes."""

    def __init__(self, server: MeasuredServer, tenant: Tenant, tenant_id: UUID) -> None:
        self.server, self.tenant, self.tenant_id = server, tenant, tenant_id
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        self.failed = 0

    async def measure(self, seconds: float) -> None:
        self.times.clear()
        self.failed = 0
        async with asyncio.TaskGroup() as tasks:
            for rate, act in ((SEARCHES_PER_SECOND, self._search), (TRACES_PER_SECOND, self._send)):
                tasks.create_task(self._act_steadily(rate, act, seconds))

    async def _act_steadily(
        self, rate: float, act: Callable[[float], Awaitable[None]], seconds: float
    ) -> None:
        """A late answer does not delay the next request."""
        start = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(int(rate * seconds)):
                due = start + number / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                tasks.create_task(self._try(act, due))

    async def _try(self, act: Callable[[float], Awaitable[None]], due: float) -> None:
        try:
            await act(due)
        except (OSError, RuntimeError, TimeoutError, ValueError):
            self.failed += 1

    async def _ask(self, name: str, due: float, path: str, body: object) -> dict[str, Any]:
        status, answer = await self.tenant.ask("POST", path, _json(body))
        if status not in (200, 201):
            raise RuntimeError(answer)
        self.times[name].append((time.perf_counter() - due) * 1000)
        return json.loads(answer)

    async def _search(self, due: float) -> None:
        await self._ask("search", due, "search", {"query_text": "refund an order", "top_k": 5})

    async def _send(self, due: float) -> None:
        task = {"task_description": f"Refund order {random.random()}"}
        made = await self._ask("trace", due, "traces?reflect=always", TRACE | task)
        connection = await connect(self.server.url("postgres"))
        learned = "select exists (select from memories where tenant_id = $1 and trace_id = $2)"
        try:
            async with asyncio.timeout(60):
                await _wait_for(connection, learned, self.tenant_id, UUID(made["trace_id"]))
        finally:
            connection.terminate()
        self.times["learning"].append((time.perf_counter() - due) * 1000)


async def _wait_for(connection: Any, statement: str, *arguments: object) -> None:
    while not await connection.fetchval(statement, *arguments):  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.02)


async def new_login(server: MeasuredServer, slug: str) -> str:
    async with owner_session(server, slug) as session:
        name = await create_login(session, PASSWORD)
    url = make_url(server.url("postgres")).set(username=name, password=PASSWORD)
    return url.render_as_string(hide_password=False)


async def empty_queue(server: MeasuredServer) -> None:
    """What the hostile tenant has queued does not belong to the next measurement."""
    connection = await connect(server.url("postgres"))
    await connection.execute("delete from tickets where taken_by is null")
    await connection.close()
    await asyncio.sleep(3)


def measure(
    report: Report, server: MeasuredServer, port: int, seconds: float, ways: Sequence[str]
) -> None:
    keys = {slug: asyncio.run(new_tenant(server, slug)) for slug in ("hostile", "other")}
    bad = Tenant(port, keys["hostile"], asyncio.run(new_login(server, "hostile")))
    other = Neighbor(server, Tenant(port, keys["other"], ""), to_tenant_id("other"))
    process, quiet = api_process(), dict[str, float]()
    asyncio.run(other.measure(3))  # warm

    def row(name: str, count: Any = None) -> None:
        asyncio.run(other.measure(seconds))
        p95 = {what: float(np.percentile(times, 95)) for what, times in other.times.items()}
        if count is None:
            quiet.update(p95)
        cells = [
            f"{p95[what]:.0f} ({p95[what] / quiet[what]:.1f} ×)" if what in p95 else "none"
            for what in ("search", "trace", "learning")
        ]
        acts = "" if count is None else f"{count.value:,}"
        report.row("figures", name, *cells, other.failed, f"{resident(process):.0f}", acts)

    for name in ways:
        row("nobody")
        with hostile_process(name, bad) as count:
            row(name, count)
        asyncio.run(empty_queue(server))


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


def main(
    seconds: Annotated[float, typer.Option(help="Length of each measurement.")] = 60,
    short: Annotated[bool, typer.Option(help="Five seconds each, writes no file.")] = False,
    only: Annotated[
        str, typer.Option(help="Only the ways whose name has this text; writes no file.")
    ] = "",
) -> None:
    ways = [name for name in WAYS if only in name]
    if not ways:
        raise typer.BadParameter(f"Choose from: {', '.join(WAYS)}.", param_hint="--only")
    report = Report(
        "hostile_clients",
        f"A tenant searches {SEARCHES_PER_SECOND} times per second and sends {TRACES_PER_SECOND}"
        " trace per second, each of which is learned from with the rules engine, while another"
        " tenant misbehaves on the same API process and worker with the default limits. Its clients"
        " run on the same cores, with a lower priority. Each way is compared with the row above."
        f" {describe_machine()}",
    )
    report.table(
        *("figures", f"p95 in ms, and × of quiet; goal: at most {MAX_RATIO:g} ×", "meanwhile"),
        *("search", "trace", "learning", "failed", "API, MB", "hostile acts"),
    )
    settings = {"HANSEI_WEBHOOK_ALLOW_PRIVATE": "true"}
    with measured_server() as server, api(server) as port, worker(server, settings):
        measure(report, server, port, 5 if short else seconds, ways)
    report.finish(write=not short and not only)


if __name__ == "__main__":
    typer.run(main)
