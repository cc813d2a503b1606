"""How fast search is, beside its floor and its rivals: `python -m bench search [--short]`.

One server, one run: bullets of one tenant beside many small tenants, in SQL and over HTTP, with
recall@10 against an exact ranking made here, and the designs that people use today. Ratios are
what counts: the machine's own speed is the first line.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import numpy as np
import typer
from pgvector.asyncpg import register_vector

from apps.memory_api.core.db import Sessions, open_engine
from apps.memory_api.core.settings import Settings
from apps.memory_api.embeddings.static import StaticEmbedder
from apps.memory_api.memory.find import CALL, Question, ask, call_of
from apps.memory_api.memory.prepare import Draft, Prepared, prepare
from apps.memory_api.memory.put import put
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.playbook.edit import apply_to_rows
from apps.memory_api.playbook.rows import Author, Place
from apps.memory_api.playbook.schemas import DeltaContextItem
from apps.memory_api.runtime import open_runtime
from apps.memory_api.tenants.identity import Access
from apps.memory_api.tenants.queries import create_key
from apps.memory_api.workers.index import keep_indexes
from bench.baselines import InProcess, JsonFile, Plain
from bench.corpus import documents, queries
from bench.fill import PROJECT, add_scope, add_tenants, prepared, settle, tenant_named
from bench.http import Caller
from bench.quality import add_quality, sets
from bench.retrieval_quality import anchored, lexical
from bench.server import MeasuredServer, api, connect, measured_server
from bench.tables import Report
from bench.timing import Spread, rate, spread, spread_beside

QUERIES = 60
TIMES = 180
SECONDS = 3.0


@dataclass(frozen=True)
class Form:
    """How much is measured."""

    sizes: Sequence[int]
    small_tenants: int
    chunks: int

    @property
    def name(self) -> str:
        return f"{self.sizes}, {self.small_tenants:,} small tenants, {self.chunks:,} chunks"


FULL = Form((100, 1_000, 10_000, 100_000), 2_000, 200_000)
SHORT = Form((100, 1_000, 10_000), 200, 20_000)


@dataclass
class Held:
    """What of a playbook this process knows itself."""

    tenant: UUID
    items: list[Prepared]
    first: int
    """The number of the first item in the database; the others follow."""


@dataclass
class Lab:
    """Everything a measurement needs."""

    server: MeasuredServer
    admin: asyncpg.Connection[Any]
    app: asyncpg.Connection[Any]
    form: Form
    report: Report
    questions: list[tuple[str, Question]] = field(default_factory=list[tuple[str, Question]])
    held: dict[int, Held] = field(default_factory=dict[int, Held])

    async def find(
        self, connection: Any, tenant: UUID, n: int, name: str = "main", top_k: int = 10
    ) -> list[Any]:
        """One search as the service sends it."""
        _, question = self.questions[n % len(self.questions)]
        address = (PROJECT, "playbook", name)
        return await connection.fetch(CALL, tenant, *call_of(question, [address], {"top_k": top_k}))

    async def time(self, tenant: UUID, name: str = "main") -> Spread:
        async def call(n: int) -> object:
            return await self.find(self.app, tenant, n, name)

        return await spread(call, TIMES)


async def measure(server: MeasuredServer, form: Form, report: Report) -> None:
    admin, app = await connect(server.url("postgres")), await connect(server.url("hansei_app"))
    for connection in (admin, app):
        await register_vector(connection)
    lab = Lab(server, admin, app, form, report)
    embedder = StaticEmbedder()
    lab.questions = [(text, await ask(embedder, text)) for text in queries()[:QUERIES]]
    await fill(lab)
    gc.freeze()  # what filling left here is not the service's to look through
    await speed(lab)
    await baselines(lab)
    await neighbours(lab)
    await add_quality(admin, app, report)
    await inserts(lab)
    await over_http(lab)
    await admin.close()
    await app.close()


async def fill(lab: Lab) -> None:
    """The playbooks, alone: their times before anybody else is there come first."""
    for size in lab.form.sizes:
        tenant = tenant_named(f"n{size}")
        items = await prepared(documents(size, size))
        await add_tenants(lab.admin, [tenant])
        first = await add_scope(lab.admin, tenant, 1, "main", items)
        lab.held[size] = Held(tenant, items, first)
    await settle(lab.admin)
    alone = await lab.time(lab.held[1_000].tenant)
    pool = await prepared(documents(2_000, 1))
    small = [tenant_named(f"small{n}") for n in range(lab.form.small_tenants)]
    await add_tenants(lab.admin, small)
    for n, tenant in enumerate(small):
        await add_scope(lab.admin, tenant, 1, "main", [pool[(n * 7 + j) % 2000] for j in range(40)])
    await settle(lab.admin)
    beside = await lab.time(lab.held[1_000].tenant)
    lab.report.row("neighbours", "1,000 bullets, alone in the database", alone, "")
    lab.report.row(
        "neighbours",
        f"the same beside {len(small):,} tenants",
        beside,
        f"× {beside.p50 / alone.p50:.2f}",
    )


async def speed(lab: Lab) -> None:
    """SQL: time, rate and recall of each size. Every search is followed by an empty round trip on
    its connection: the floor under the conditions of that search.
    """
    empty = await lab.app.prepare("select 1")

    async def nothing(_: int) -> object:
        return await empty.fetchval()

    lab.report.row("floor", "empty round trips one after the other", await spread(nothing, 500))
    made = 0.0
    if max(lab.form.sizes) >= 50_000:
        begun = time.perf_counter()
        sessions = Sessions(open_engine(lab.server.url("hansei_app"), pool_size=1))
        owner = lab.server.url("hansei_owner")
        await keep_indexes(sessions, owner, lab.held[max(lab.form.sizes)].tenant)
        await sessions.close()
        made = time.perf_counter() - begun
    pool = [await connect(lab.server.url("hansei_app")) for _ in range(4)]
    for connection in pool:
        await register_vector(connection)
    for size, held in lab.held.items():

        async def search(n: int, tenant: UUID = held.tenant) -> object:
            return await lab.find(lab.app, tenant, n)

        taken, floor = await spread_beside(search, nothing, TIMES)

        def caller(connection: Any, tenant: UUID = held.tenant) -> Any:
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
            f"{await recall(lab, held):.3f}",
        )
    if made:
        lab.report.row("floor", "vector index of the largest playbook, made once", f"{made:.0f} s")
    for connection in pool:
        await connection.close()


async def recall(lab: Lab, held: Held) -> float:
    """Mean share of the ten found that are the ten best, by id, when every document is scored here;
    of equal scores the newest is the better one, as in the service.
    """
    matrix = np.stack([i.vector for i in held.items]).astype(np.float16).astype(np.float64)
    asked = np.stack([q.vector for _, q in lab.questions]).astype(np.float16).astype(np.float64)
    words = lexical([i.weights for i in held.items], [q.terms for _, q in lab.questions])
    shares: list[float] = []
    for n, scores in enumerate(anchored(asked @ matrix.T, words)):
        rounded = scores.round(6)  # single precision in the database
        best = np.lexsort((-np.arange(len(scores)), -rounded))[:10]
        found = {row["n"] - held.first for row in await lab.find(lab.app, held.tenant, n)}
        shares.append(len(found & set(best.tolist())) / 10)
    return float(np.mean(shares))


async def baselines(lab: Lab) -> None:
    await Plain.make(lab.admin)
    plain = Plain(lab.app)
    for size, held in lab.held.items():
        ours = await lab.time(held.tenant)
        memory = InProcess(held.items)

        async def in_memory(n: int, memory: InProcess = memory) -> object:
            text, question = lab.questions[n % QUERIES]
            return memory.search(text, question.vector)

        async def in_plain(n: int, tenant: UUID = held.tenant) -> list[int]:
            text, question = lab.questions[n % QUERIES]
            return await plain.search(tenant, text, question.vector)

        b2, c = await spread(in_memory, QUERIES), await spread(in_plain, QUERIES)
        found = [len(await in_plain(n)) for n in range(QUERIES)]
        b = await json_file(lab, held)
        lab.report.row(
            "rivals",
            f"{size:,}",
            ours,
            f"{b:.0f}" if b else "-",
            f"{b / ours.p50:.0f} ×" if b else "-",
            b2,
            f"{b2.p50 / ours.p50:.2f} ×",
            c,
            f"{c.p50 / ours.p50:.1f} ×",
            f"{np.mean(found):.1f}",
        )


async def json_file(lab: Lab, held: Held) -> float:
    """Median milliseconds of few queries: they are slow. 0 where nobody would wait for it."""
    if len(held.items) > 10_000:
        return 0.0
    with tempfile.TemporaryDirectory() as folder:
        design = JsonFile(Path(folder) / "playbook.json", held.items)
        taken: list[float] = []
        for text, _ in lab.questions[: 3 if len(held.items) >= 10_000 else 9]:
            begun = time.perf_counter()
            await asyncio.to_thread(design.search, text)
            taken.append((time.perf_counter() - begun) * 1000)
        await asyncio.to_thread(design.close)
    return float(np.median(taken))


async def neighbours(lab: Lab) -> None:
    """The same playbook alone, inside a crowd of chunks, and with as many quarantined beside."""
    bullets = await prepared(documents(200, 3))
    alone, crowded = tenant_named("alone"), tenant_named("crowded")
    await add_tenants(lab.admin, [alone, crowded])
    for tenant in (alone, crowded):
        await add_scope(lab.admin, tenant, 1, "main", bullets)
    pool = await prepared(documents(10_000, 4), Kind.CHUNK)
    for scope in range(2, 2 + max(1, lab.form.chunks // len(pool))):
        await add_scope(lab.admin, crowded, scope, f"c{scope}", pool, area="collection")
    thousand = lab.held[1_000]
    half = tenant_named("half")
    await add_tenants(lab.admin, [half])
    await add_scope(lab.admin, half, 1, "main", thousand.items, hidden=1_000)
    await settle(lab.admin)
    for whole, name, crowd, other in (
        (
            alone,
            "200 bullets, alone in their tenant",
            crowded,
            f"inside {lab.form.chunks:,} chunks",
        ),
        (thousand.tenant, "1,000 bullets", half, "beside 1,000 quarantined ones"),
    ):
        first, second = await lab.time(whole), await lab.time(crowd)
        first = min(first, await lab.time(whole), key=lambda s: s.p50)
        second = min(second, await lab.time(crowd), key=lambda s: s.p50)
        lab.report.row("neighbours", name, first, "")
        lab.report.row("neighbours", f"the same {other}", second, f"× {second.p50 / first.p50:.2f}")


async def inserts(lab: Lab) -> None:
    """Batches of 200: rows, revisions, vectors and postings, as the app role, each batch committed.
    Texts were embedded and tokenised before; and as deltas of a playbook, with all that.
    """
    writer, editor = tenant_named("writer"), tenant_named("editor")
    await add_tenants(lab.admin, [writer, editor])
    address = (PROJECT, "playbook", "main")
    texts = documents(4_000, 9)
    drafts = [Draft(Kind.BULLET, PROJECT, text, address) for text in texts]
    items = await prepare(StaticEmbedder(), drafts)
    batches = [slice(start, start + 200) for start in range(0, len(texts), 200)]
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    async with open_runtime(settings, lab.server.url("hansei_app")) as runtime:
        begun = time.perf_counter()
        for batch in batches:
            async with runtime.sessions.tenant(writer) as session:
                await put(session, items[batch])
        plain = time.perf_counter() - begun
        begun = time.perf_counter()
        for batch in batches:
            adds = [{"type": "ADD", "section": "pat", "content": text} for text in texts[batch]]
            adds = [DeltaContextItem.model_validate(add) for add in adds]
            await apply_to_rows(runtime, editor, Place(PROJECT, "main"), adds, Author("bench"))
        edited = time.perf_counter() - begun
    for tenant, taken, how in (
        (writer, plain, "bullets inserted, batches of 200"),
        (editor, edited, "the same as deltas of a playbook: tokenised, embedded, looked up"),
    ):
        there = await lab.admin.fetchval(
            "select count(*) from memory_revisions where tenant_id = $1", tenant
        )
        lab.report.row("floor", how, f"{there / taken:,.0f} /s")


async def over_http(lab: Lab) -> None:
    held = dict(lab.held)
    if 8_000 not in held:  # the size that a figure is asked for
        tenant = tenant_named("n8000")
        items = held[10_000].items[:8_000]
        await add_tenants(lab.admin, [tenant])
        held[8_000] = Held(tenant, items, await add_scope(lab.admin, tenant, 1, "main", items))
        await settle(lab.admin)
    sessions = Sessions(open_engine(lab.server.url("hansei_owner"), pool_size=1))
    keys: dict[int, str] = {}
    for size, known in held.items():
        async with sessions.tenant(known.tenant) as session:
            keys[size] = (await create_key(session, scopes=[Access.READ]))[1].text
    await sessions.close()
    with api(lab.server) as port:
        for size in sorted(held):
            callers = [Caller(port, keys[size]) for _ in range(8)]

            def call(caller: Caller) -> Any:
                def search(n: int) -> Any:
                    text = lab.questions[n % QUERIES][0]
                    return caller.search({"query_text": text, "playbook": "main"})

                return search

            one = await spread(call(callers[0]), TIMES)
            eight, each = await rate([call(caller) for caller in callers], SECONDS)
            lab.report.row("http", f"{size:,}", one, each, f"{eight:.0f}")
            for caller in callers:
                await caller.close()


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
    report.table("floor", "The floor, and writing", "", "")
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
        *("http", "Over HTTP, with a key", "bullets"),
        *("ms, 1 client", "ms, 8 clients", "requests/s, 8 clients"),
    )
    report.table(
        *("rivals", "Beside what people do today", "bullets", "Hansei ms"),
        *("(b) JSON file ms", "b / Hansei", "(b′) in process ms", "b′ / Hansei"),
        *("(c) plain pgvector ms", "c / Hansei", "rows (c) finds of 10"),
    )
    report.table("neighbours", "Flat in what stands beside it", "", "ms", "")
    names = [data.name for data in sets()]
    report.table("quality", "Quality: recall@10 / nDCG@10, ranked by SQL", "", *names)
    with measured_server() as server:
        asyncio.run(measure(server, form, report))
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
