"""Search and render over HTTP as clients use them: real texts and questions, latency, and the CPU
time that PostgreSQL and the API process spend on a request. One client asks one API process; eight
clients ask two. The clients run on the same machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import psutil

from bench.corpus import documents, queries, real_texts
from bench.fill import add_scope, add_tenants, prepared, settle, tenant_named
from bench.http_client import Caller
from bench.report import Report
from bench.server import MeasuredServer, api
from bench.timing import rate, spread
from memory_api.auth.identity import KeyScope
from memory_api.auth.queries import create_key
from memory_api.core.db import Sessions, open_engine

SIZES = (200, 1_000, 8_000)
QUESTIONS = 150
SECONDS = 4.0
CLIENTS = 8
PROCESSES = 2
ROUTES = {
    "playbook search": "/api/v1/playbooks/main/search",
    "render": "/api/v1/playbooks/main/render",
    "search": "/api/v1/search",
}


def texts(count: int) -> list[str]:
    """Real texts in random order; above their number, also texts of several real sentences."""
    found = real_texts()
    random.Random(3).shuffle(found)
    return [*found, *documents(max(0, count - len(found)), count)][:count]


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


async def over_http(server: MeasuredServer, admin: asyncpg.Connection[Any], report: Report) -> None:
    """Add the rows of the table `http`."""
    keys: dict[int, str] = {}
    sessions = Sessions(open_engine(server.url("hansei_owner"), pool_size=1))
    for size in SIZES:
        tenant = tenant_named(f"http{size}")
        await add_tenants(admin, [tenant])
        await add_scope(admin, tenant, 1, "main", await prepared(texts(size)))
        async with sessions.for_tenant(tenant) as session:
            keys[size] = (await create_key(session, scopes=[KeyScope.READ]))[1].text
    await sessions.close()
    await settle(admin)
    postmaster = psutil.Process(admin.get_server_pid()).parent()
    assert postmaster is not None

    def backends() -> list[psutil.Process]:
        return [p for p in postmaster.children() if "hansei_app" in " ".join(p.cmdline())]

    alone: dict[tuple[int, str], tuple[object, ...]] = {}
    with api(server) as port:
        serve = [p for p in psutil.Process().children() if "serve" in p.cmdline()]
        database, service = CpuClock(backends), CpuClock(lambda: serve)
        for size, key in keys.items():
            client = Caller(port, key)
            for name, path in ROUTES.items():
                one = caller(client, path)
                await spread(one, QUESTIONS)  # the connections make their plans once
                before = database.read(), service.read()
                taken = await spread(one, QUESTIONS, warm=0)
                spent = database.read() - before[0], service.read() - before[1]
                cpu = (f"{milliseconds / QUESTIONS:.2f}" for milliseconds in spent)
                alone[size, name] = taken, *cpu
            await client.close()
    with api(server, processes=PROCESSES) as port:
        for size, key in keys.items():
            callers = [Caller(port, key) for _ in range(CLIENTS)]
            for name, path in ROUTES.items():
                calls = [caller(one, path) for one in callers]
                await rate(calls, SECONDS / 2)  # each connection of each process makes its plans
                eight, each = await rate(calls, SECONDS)
                report.row("http", f"{size:,}", name, *alone[size, name], each, f"{eight:.0f}")
            for open_caller in callers:
                await open_caller.close()


def caller(client: Caller, path: str) -> Callable[[int], Awaitable[object]]:
    questions = queries()[:QUESTIONS]
    scope = {"playbook": "main"} if path == ROUTES["search"] else {}

    def ask(n: int) -> Awaitable[object]:
        body = {"query_text": questions[n % len(questions)], **scope}
        return client.ask("POST", path, json.dumps(body).encode())

    return ask
