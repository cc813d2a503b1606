"""Cost of search by the size of a scope, and of a small scope in a large tenant.

Prints latency and CPU of PostgreSQL of one search, with the minimum confidence that a playbook
search has by default, and the exponent: the logarithm of the ratio of two CPU times by that of the
sizes. 0 is independent of the size, 1 is proportional to it. `--million` adds a scope of a million
memories, which takes half an hour and 10 GB of disk.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import psutil
import typer
from pgvector.asyncpg import register_vector

from bench.data import (
    PROJECT,
    add_memories,
    add_playbook,
    add_tenant,
    prepared,
    queries,
    settle,
    texts,
)
from bench.harness import (
    CpuClock,
    MeasuredServer,
    Report,
    connect,
    describe_machine,
    measured_server,
    spread,
)
from memory_api.core.db import Sessions, open_engine
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.maintenance.vector_indexes import sync_vector_indexes
from memory_api.memories.search.query import (
    SEARCH_CALL,
    EmbeddedQuery,
    SearchFilters,
    build_call,
)
from memory_api.memories.search.search import embed_query

SIZES = (100, 1_000, 10_000, 100_000)
MILLION = 1_000_000
CHUNK = 50_000
"""Memories that are prepared and inserted at once."""
SMALL, SCOPES = 200, 1_000
QUESTIONS = 100
DEFAULT_FILTERS = SearchFilters(min_confidence=0.3)


async def fill_scope(admin: asyncpg.Connection[Any], size: int) -> UUID:
    tenant = await add_tenant(admin, f"growth{size}")
    content = texts(size)
    await add_playbook(admin, tenant, 1, "main", await prepared(content[:CHUNK]))
    for start in range(CHUNK, size, CHUNK):
        await add_memories(admin, tenant, 1, await prepared(content[start : start + CHUNK]))
    return tenant


async def measure(server: MeasuredServer, report: Report, sizes: Sequence[int]) -> None:
    admin, app = await connect(server.url("postgres")), await connect(server.url("hansei_app"))
    for connection in (admin, app):
        await register_vector(connection)
    embedder = StaticEmbedder()
    questions = [await embed_query(embedder, text) for text in queries()[:QUESTIONS]]
    sessions = Sessions(open_engine(server.url("hansei_app"), pool_size=1))
    before: tuple[int, float] | None = None
    for size in sizes:
        tenant = await fill_scope(admin, size)
        await settle(admin)
        await sync_vector_indexes(sessions, server.url("hansei_owner"), tenant)
        taken, cpu = await search(app, tenant, questions)
        exponent = f"{math.log(cpu / before[1]) / math.log(size / before[0]):.2f}" if before else ""
        report.row("growth", f"{size:,} in one scope", taken, f"{cpu:.2f}", exponent)
        before = size, cpu
    await sessions.close()
    items = await prepared(texts(SMALL))
    alone, crowded = [await add_tenant(admin, f"growth-{name}") for name in ("alone", "crowded")]
    await add_playbook(admin, alone, 1, "main", items)
    for scope in range(1, SCOPES + 1):
        await add_playbook(admin, crowded, scope, "main" if scope == 1 else f"p{scope}", items)
    await settle(admin)
    for tenant, name in ((alone, "alone"), (crowded, f"in a tenant of {SCOPES:,} such scopes")):
        taken, cpu = await search(app, tenant, questions)
        report.row("growth", f"{SMALL} {name}", taken, f"{cpu:.2f}", "")
    await admin.close()
    await app.close()


async def search(
    app: asyncpg.Connection[Any], tenant: UUID, questions: Sequence[EmbeddedQuery]
) -> tuple[object, float]:
    """Latency, and CPU milliseconds of PostgreSQL per search."""
    calls = [
        build_call(question, [(PROJECT, "playbook", "main")], {"filters": DEFAULT_FILTERS})
        for question in questions
    ]
    clock = CpuClock(lambda: [psutil.Process(app.get_server_pid())])

    async def one(n: int) -> object:
        return await app.fetch(SEARCH_CALL, tenant, *calls[n % len(calls)])

    await spread(one, len(calls))  # everything is in the cache
    before = clock.read()
    taken = await spread(one, len(calls), warm=0)
    return taken, (clock.read() - before) / len(calls)


def main(
    million: Annotated[
        bool, typer.Option("--million", help="Add a scope of a million memories.")
    ] = False,
) -> None:
    report = Report(
        "growth",
        f"{QUESTIONS} real questions. {describe_machine()} Up to 8,400 memories "
        " are real texts; more are made of real sentences. Times are p50 / p95 in ms.",
    )
    report.table("growth", "Search in SQL", "memories", "ms", "CPU of PostgreSQL, ms", "exponent")
    with measured_server() as server:
        asyncio.run(measure(server, report, (*SIZES, MILLION) if million else SIZES))
    report.finish()


if __name__ == "__main__":
    typer.run(main)
