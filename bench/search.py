"""Search and render over HTTP as clients use them: real texts and questions, latency, and the CPU
time that PostgreSQL and the API process spend on a request. One client asks one API process; eight
clients ask two. The clients run on the same machine.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import psutil
import typer
from pgvector.asyncpg import register_vector

from bench.data import add_playbook, add_tenant, prepared, queries, settle, texts
from bench.harness import (
    Call,
    Caller,
    CpuClock,
    MeasuredServer,
    Report,
    api,
    api_process,
    connect,
    describe_machine,
    measured_server,
    rate,
    spread,
)
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


async def measure(server: MeasuredServer, report: Report, sizes: tuple[int, ...]) -> None:
    admin = await connect(server.url("postgres"))
    await register_vector(admin)
    keys: dict[int, str] = {}
    sessions = Sessions(open_engine(server.url("hansei_owner"), pool_size=1))
    for size in sizes:
        tenant = await add_tenant(admin, f"http{size}")
        await add_playbook(admin, tenant, 1, "main", await prepared(texts(size)))
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
        process = api_process()
        database, service = CpuClock(backends), CpuClock(lambda: [process])
        for size, key in keys.items():
            client = Caller(port, key)
            for name, path in ROUTES.items():
                one = asker(client, path)
                await spread(one, QUESTIONS)  # the connections make their plans once
                before = database.read(), service.read()
                taken = await spread(one, QUESTIONS, warm=0)
                spent = database.read() - before[0], service.read() - before[1]
                cpu = (f"{milliseconds / QUESTIONS:.2f}" for milliseconds in spent)
                alone[size, name] = taken, *cpu
            await client.close()
    with api(server, processes=PROCESSES) as port:
        for size, key in keys.items():
            clients = [Caller(port, key) for _ in range(CLIENTS)]
            for name, path in ROUTES.items():
                calls = [asker(one, path) for one in clients]
                await rate(calls, SECONDS / 2)  # each connection of each process makes its plans
                eight, each = await rate(calls, SECONDS)
                report.row("http", f"{size:,}", name, *alone[size, name], each, f"{eight:.0f}")
            for client in clients:
                await client.close()
    await admin.close()


def asker(client: Caller, path: str) -> Call:
    """Asks one of the real questions."""
    scope = {"playbook": "main"} if path == ROUTES["search"] else {}
    bodies = [json.dumps({"query_text": text, **scope}).encode() for text in queries()[:QUESTIONS]]
    return lambda n: client.ask("POST", path, bodies[n % len(bodies)])


def main(
    short: Annotated[bool, typer.Option(help="The smallest playbook, writes no file.")] = False,
) -> None:
    report = Report(
        "search",
        f"{QUESTIONS} real questions. {describe_machine()} Times are p50 / p95 in ms.",
    )
    report.table(
        *("http", "Over HTTP, with an API key; real texts and questions", "bullets", "route"),
        *("ms, 1 client", "CPU of PostgreSQL, ms", "CPU of the API, ms"),
        *("ms, 8 clients", "requests/s, 8 clients"),
    )
    with measured_server() as server:
        asyncio.run(measure(server, report, SIZES[:1] if short else SIZES))
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
