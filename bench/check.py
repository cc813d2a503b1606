"""Whether search is slower than before: `python -m bench check` compares it with the last ratios.

A ratio divides the CPU time of a search by that of a reference in the same run, so that it depends
little on the machine: in PostgreSQL one pass over 8,000 vectors, in the API process the embedding
and the tokenizing of the question. Exits with status 1 if a ratio is more than 15 % above the
committed one. `--write` commits the ratios of this run to `bench/results/ratios.json`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import asyncpg
import psutil
import typer
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from bench.corpus import queries
from bench.fill import PROJECT, add_scope, add_tenants, prepared, settle, tenant_named
from bench.http_client import Caller
from bench.report import RESULTS
from bench.search_http import ROUTES, CpuClock, caller, texts
from bench.server import MeasuredServer, api, connect, measured_server
from memory_api.auth.identity import KeyScope
from memory_api.auth.queries import create_key
from memory_api.core.db import Sessions, open_engine
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.memories.search.query import (
    SEARCH_CALL,
    EmbeddedQuery,
    SearchFilters,
    build_call,
)
from memory_api.memories.search.search import embed_query

COMMITTED = RESULTS / "ratios.json"
ALLOWED = 1.15
SIZES = (200, 8_000)
CALLS, ROUNDS = 60, 12
PASS = """
select count(*) from memory_vectors v
where v.tenant_id = $1 and v.scope_id = 1 and v.model_label_id = 1 and v.embedding <#> $2 < -0.99
"""
FILTERS = {"no filter": SearchFilters(), "minimum confidence": SearchFilters(min_confidence=0.3)}
Call = Callable[[int], Awaitable[object]]


async def cpu(clock: CpuClock, call: Call) -> float:
    """CPU milliseconds per call."""
    before = clock.read()
    for n in range(CALLS):
        await call(n)
    return (clock.read() - before) / CALLS


async def lowest_ratio(clock: CpuClock, call: Call, reference: Call) -> float:
    """The lowest CPU of several rounds, which alternate call and reference: other processes can
    only increase it.
    """
    await cpu(clock, call)  # plans, caches
    rounds = [(await cpu(clock, call), await cpu(clock, reference)) for _ in range(ROUNDS)]
    return min(r[0] for r in rounds) / min(r[1] for r in rounds)


async def database_ratios(
    app: asyncpg.Connection[Any], questions: list[EmbeddedQuery]
) -> dict[str, float]:
    clock = CpuClock(lambda: [psutil.Process(app.get_server_pid())])
    largest = tenant_named(f"check{max(SIZES)}")
    await app.execute("set plan_cache_mode = force_generic_plan")

    async def scan(n: int) -> object:
        async with app.transaction():
            await app.execute(f"set local hansei.tenant_id = '{largest}'")
            vector = HalfVector(questions[n % len(questions)].vector)
            return await app.fetchval(PASS, largest, vector)

    ratios: dict[str, float] = {}
    for size in SIZES:
        tenant = tenant_named(f"check{size}")
        for name, filters in FILTERS.items():
            address = (PROJECT, "playbook", "main")
            calls = [build_call(q, [address], {"filters": filters}) for q in questions]

            async def search(n: int, tenant: Any = tenant, calls: Any = calls) -> object:
                return await app.fetch(SEARCH_CALL, tenant, *calls[n % len(calls)])

            key = f"search in SQL, {size:,} bullets, {name}"
            ratios[key] = await lowest_ratio(clock, search, scan)
    return ratios


async def api_ratios(server: MeasuredServer, key: str, questions: list[str]) -> dict[str, float]:
    embedder = StaticEmbedder()

    async def reference() -> float:
        """CPU milliseconds of embedding and tokenizing one question, in this process."""
        before = time.thread_time()
        for n in range(CALLS):
            await embed_query(embedder, questions[n % len(questions)])
        return (time.thread_time() - before) * 1000 / CALLS

    ratios: dict[str, float] = {}
    with api(server) as port:
        serve = [p for p in psutil.Process().children() if "serve" in p.cmdline()]
        clock = CpuClock(lambda: serve)
        client = Caller(port, key)
        for name, path in ROUTES.items():
            call = caller(client, path)
            await cpu(clock, call)
            rounds = [(await cpu(clock, call), await reference()) for _ in range(ROUNDS)]
            lowest = min(r[0] for r in rounds) / min(r[1] for r in rounds)
            ratios[f"{name} in the API process, {min(SIZES)} bullets"] = lowest
        await client.close()
    return ratios


async def measure(server: MeasuredServer) -> dict[str, float]:
    admin, app = await connect(server.url("postgres")), await connect(server.url("hansei_app"))
    for connection in (admin, app):
        await register_vector(connection)
    for size in SIZES:
        tenant = tenant_named(f"check{size}")
        await add_tenants(admin, [tenant])
        await add_scope(admin, tenant, 1, "main", await prepared(texts(size)))
    await settle(admin)
    sessions = Sessions(open_engine(server.url("hansei_owner"), pool_size=1))
    async with sessions.for_tenant(tenant_named(f"check{min(SIZES)}")) as session:
        key = (await create_key(session, scopes=[KeyScope.READ]))[1].text
    await sessions.close()
    asked = queries()[:CALLS]
    embedder = StaticEmbedder()
    ratios = await database_ratios(app, [await embed_query(embedder, text) for text in asked])
    await admin.close()
    await app.close()
    return ratios | await api_ratios(server, key, asked)


def main(
    write: Annotated[bool, typer.Option(help="Replace the committed ratios.")] = False,
) -> None:
    with measured_server() as server:
        ratios = asyncio.run(measure(server))
    committed = {} if write else json.loads(COMMITTED.read_text(encoding="utf8"))
    slower = [name for name, limit in committed.items() if ratios[name] > limit * ALLOWED]
    for name, ratio in ratios.items():
        known = f", committed {committed[name]:.2f}" if name in committed else ""
        print(f"{ratio:6.2f}  {name}{known}{'  SLOWER' if name in slower else ''}")
    if write:
        rounded = {name: round(ratio, 2) for name, ratio in ratios.items()}
        COMMITTED.write_text(json.dumps(rounded, indent=2) + "\n", encoding="utf8")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    typer.run(main)
