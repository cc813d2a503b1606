"""Search times compared with their lower bound: `python -m bench search [--short]`.

One server holds the playbooks that are measured and many small tenants. Searches run in SQL and
over HTTP; recall@10 is measured against an exact ranking. Compare ratios, because absolute times
depend on the machine: the first table shows its speed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import time
from typing import Annotated, Any
from uuid import UUID

import numpy as np
import typer
from pgvector.asyncpg import register_vector

from bench.corpus import documents, queries
from bench.fill import PROJECT, add_scope, add_tenants, prepared, settle, tenant_named
from bench.report import Report
from bench.retrieval_quality import anchored, lexical
from bench.search_http import over_http
from bench.search_lab import FULL, QUERIES, SHORT, TIMES, Form, LoadedPlaybook, SearchLab, fill
from bench.search_quality import add_quality, sets
from bench.server import MeasuredServer, connect, measured_server
from bench.timing import rate, spread, spread_alternating
from memory_api.bootstrap import open_runtime
from memory_api.core.db import Sessions, open_engine
from memory_api.core.settings import Settings
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.embeddings.tenant_models import TenantEmbedder
from memory_api.maintenance.vector_indexes import sync_vector_indexes
from memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from memory_api.memories.index.writer import insert_memories
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.search.search import embed_query
from memory_api.playbooks.editing.edits import apply_deltas_to_playbook
from memory_api.playbooks.models import DeltaContextItem
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef

SECONDS = 3.0


async def measure(server: MeasuredServer, form: Form, report: Report) -> None:
    admin, app = await connect(server.url("postgres")), await connect(server.url("hansei_app"))
    for connection in (admin, app):
        await register_vector(connection)
    lab = SearchLab(server, admin, app, form, report)
    embedder = StaticEmbedder()
    lab.questions = [(text, await embed_query(embedder, text)) for text in queries()[:QUERIES]]
    await fill(lab)
    gc.freeze()  # the collector must not scan the objects that filling created
    await speed(lab)
    await neighbors(lab)
    await add_quality(admin, app, report)
    await inserts(lab)
    await over_http(lab.server, admin, report)
    await admin.close()
    await app.close()


async def speed(lab: SearchLab) -> None:
    """SQL: time, rate and recall of each size. Every search is followed by an empty round trip on
    its connection: the floor under the conditions of that search.
    """
    empty = await lab.app.prepare("select 1")

    async def nothing(_: int) -> object:
        return await empty.fetchval()

    lab.report.row("floor", "empty round trips, sequential", await spread(nothing, 500))
    index_seconds = 0.0
    if max(lab.form.sizes) >= 50_000:
        begun = time.perf_counter()
        sessions = Sessions(open_engine(lab.server.url("hansei_app"), pool_size=1))
        owner = lab.server.url("hansei_owner")
        await sync_vector_indexes(sessions, owner, lab.playbooks[max(lab.form.sizes)].tenant)
        await sessions.close()
        index_seconds = time.perf_counter() - begun
    pool = [await connect(lab.server.url("hansei_app")) for _ in range(4)]
    for connection in pool:
        await register_vector(connection)
    for size, playbook in lab.playbooks.items():

        async def search(n: int, tenant: UUID = playbook.tenant) -> object:
            return await lab.find(lab.app, tenant, n)

        taken, floor = await spread_alternating(search, nothing, TIMES)

        def caller(connection: Any, tenant: UUID = playbook.tenant) -> Any:
            return lambda n: lab.find(connection, tenant, n)

        one, _ = await rate([caller(pool[0])], SECONDS)
        four, each = await rate([caller(connection) for connection in pool], SECONDS)
        lab.report.row(
            "sql",
            f"{size:,}",
            taken,
            floor,
            f"{taken.p50 / floor.p50:.0f} ×",
            f"{one:.0f}",
            each,
            f"{four:.0f}",
            f"{await recall(lab, playbook):.3f}",
        )
    if index_seconds:
        lab.report.row(
            "floor", "build of the vector index of the largest playbook", f"{index_seconds:.0f} s"
        )
    for connection in pool:
        await connection.close()


async def recall(lab: SearchLab, playbook: LoadedPlaybook) -> float:
    """Mean share of the exact top ten among the ten hits. The exact ranking scores every document
    in this process and orders equal scores by age, newest first, as the service does.
    """
    matrix = np.stack([i.vector for i in playbook.items]).astype(np.float16).astype(np.float64)
    asked = np.stack([q.vector for _, q in lab.questions]).astype(np.float16).astype(np.float64)
    words = lexical([i.weights for i in playbook.items], [q.terms for _, q in lab.questions])
    shares: list[float] = []
    for n, scores in enumerate(anchored(asked @ matrix.T, words)):
        rounded = scores.round(6)  # single precision in the database
        best = np.lexsort((-np.arange(len(scores)), -rounded))[:10]
        found = {row["seq"] - playbook.first for row in await lab.find(lab.app, playbook.tenant, n)}
        shares.append(len(found & set(best.tolist())) / 10)
    return float(np.mean(shares))


async def inserts(lab: SearchLab) -> None:
    """Rows per second in batches of 200, each committed as the app role: first memories that are
    already tokenized and embedded, then deltas of a playbook, with tokenizing and embedding.
    """
    writer, editor = tenant_named("writer"), tenant_named("editor")
    await add_tenants(lab.admin, [writer, editor])
    address = (PROJECT, "playbook", "main")
    texts = documents(4_000, 9)
    drafts = [MemoryDraft(MemoryKind.BULLET, PROJECT, text, address) for text in texts]
    items = await prepare_memories(TenantEmbedder(StaticEmbedder()), drafts)
    batches = [slice(start, start + 200) for start in range(0, len(texts), 200)]
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    async with open_runtime(settings, lab.server.url("hansei_app")) as runtime:
        begun = time.perf_counter()
        for batch in batches:
            async with runtime.sessions.for_tenant(writer) as session:
                await insert_memories(session, items[batch])
        plain = time.perf_counter() - begun
        begun = time.perf_counter()
        for batch in batches:
            adds = [{"type": "ADD", "section": "pat", "content": text} for text in texts[batch]]
            adds = [DeltaContextItem.model_validate(add) for add in adds]
            await apply_deltas_to_playbook(
                runtime, editor, PlaybookRef(PROJECT, "main"), adds, ChangeAuthor("bench")
            )
        edited = time.perf_counter() - begun
    for tenant, taken, how in (
        (writer, plain, "bullets inserted, batches of 200"),
        (editor, edited, "the same as deltas of a playbook: tokenized, embedded, deduplicated"),
    ):
        inserted = await lab.admin.fetchval(
            "select count(*) from memory_revisions where tenant_id = $1", tenant
        )
        lab.report.row("floor", how, f"{inserted / taken:,.0f} /s")


async def neighbors(lab: SearchLab) -> None:
    """One playbook alone, in a tenant with many chunks, and with as many quarantined bullets."""
    bullets = await prepared(documents(200, 3))
    alone, crowded = tenant_named("alone"), tenant_named("crowded")
    await add_tenants(lab.admin, [alone, crowded])
    for tenant in (alone, crowded):
        await add_scope(lab.admin, tenant, 1, "main", bullets)
    pool = await prepared(documents(10_000, 4), MemoryKind.CHUNK)
    for scope in range(2, 2 + max(1, lab.form.chunks // len(pool))):
        await add_scope(lab.admin, crowded, scope, f"c{scope}", pool, scope_type="collection")
    thousand = lab.playbooks[1_000]
    half = tenant_named("half")
    await add_tenants(lab.admin, [half])
    await add_scope(lab.admin, half, 1, "main", thousand.items, hidden=1_000)
    await settle(lab.admin)
    for whole, name, crowd, other in (
        (
            alone,
            "200 bullets, alone in the tenant",
            crowded,
            f"with {lab.form.chunks:,} chunks in the tenant",
        ),
        (thousand.tenant, "1,000 bullets", half, "with 1,000 quarantined ones"),
    ):
        first, second = await lab.time(whole), await lab.time(crowd)
        first = min(first, await lab.time(whole), key=lambda s: s.p50)
        second = min(second, await lab.time(crowd), key=lambda s: s.p50)
        lab.report.row("neighbors", name, first, "")
        lab.report.row("neighbors", f"the same {other}", second, f"× {second.p50 / first.p50:.2f}")


def main(
    short: Annotated[bool, typer.Option(help="Up to 10,000 bullets, about two minutes.")] = False,
) -> None:
    form = SHORT if short else FULL
    report = Report(
        "search",
        f"{form.name}. {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, load {os.getloadavg()[0]:.1f} at the start. Times are p50 / "
        f"p95 in ms over {QUERIES} real queries, connections over TCP on this machine.",
    )
    report.table("floor", "Lower bound, and inserts", "", "")
    report.table(
        *("sql", "Search in SQL: one prepared call, tenant binding included", "bullets", "ms"),
        *(
            "empty round trip ms",
            "× empty",
            "queries/s, 1 connection",
            "ms, 4 connections",
            "queries/s, 4 connections",
            "recall@10",
        ),
    )
    report.table(
        *("http", "Over HTTP, with an API key; real texts and questions", "bullets", "route"),
        *("ms, 1 client", "CPU of PostgreSQL, ms", "CPU of the API, ms"),
        *("ms, 8 clients", "requests/s, 8 clients"),
    )
    report.table("neighbors", "Effect of other data in the same database", "", "ms", "")
    names = [data.name for data in sets()]
    report.table("quality", "Quality: recall@10 / nDCG@10, ranked by SQL", "", *names)
    with measured_server() as server:
        asyncio.run(measure(server, form, report))
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
