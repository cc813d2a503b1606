"""100 runs of the agent at once: latency of events, time of a step, loading of pages, idle waits.

    python -m bench agent_load [--short]

API and worker are processes of their own. Latency of an event: from the start of the transaction
that stores it until the client has read it, also of events that are older than the client's stream.
Time of a step: from the start of the transaction that stores the plan to the commit of the last
event, divided by the steps. Overhead of a step: this time without the time that the tools took.
With 100 runs at once, both include waiting for the other runs that the worker executes at the same
time, and for a core: API, PostgreSQL and client need both cores, too. The time in which the worker
was ready to go on but had no core is from Linux (schedstat).
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import asyncpg
import numpy as np
import psutil
import typer
from httpx2 import AsyncClient, Limits

from bench.ingest import new_tenant
from bench.report import Report
from bench.retrieval_quality import DEFAULT, RetrievalSet, load
from bench.server import (
    MeasuredServer,
    api,
    connect,
    measured_server,
    process_cpu_seconds,
    worker,
)
from memory_api.core.telemetry import configure_logging
from tests.support.pdf import make_pdf

RUNS, PAGES, PAGES_PER_DOCUMENT = 100, 10_000, 100
URL = "/api/v1/agents/runs"
TIMES = """
select extract(epoch from max(pg_xact_commit_timestamp(xmin))
        - min(created_at) filter (where type = 'plan_created'))::float8 as whole,
    (select count(*) from agent_steps as step
        where step.agent_run_id = event.agent_run_id and step.result is not null) as steps,
    (select sum((step.result ->> 'execution_time_ms')::float8) from agent_steps as step
        where step.agent_run_id = event.agent_run_id) as tools
from agent_events as event where agent_run_id = any($1::uuid[]) group by agent_run_id
"""
"""Per run: seconds from the plan to the commit of the last event, steps, milliseconds of tools."""
UNKNOWN = "Who piloted the zeppelin over Madagascar yesterday?"


def main(short: Annotated[bool, typer.Option(help="A tenth, writes no file.")] = False) -> None:
    configure_logging("console", "error")
    report = Report(
        "agent_load",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f} at the start. One API, one worker, PostgreSQL and the client "
        "share the machine. Without a model.",
    )
    report.table("load", "PDF pages loaded; goal ≥ 50/s", "pages", "chunks", "s", "pages/s")
    report.table(
        *("runs", "Runs of two steps; goals: p95 of an event ≤ 200 ms, overhead of a step ≤ 15 ms"),
        *("runs at once", "s for 100 runs", "event p50, ms", "event p95, ms"),
        *("time of a step p50, ms", "its overhead p50, ms", "CPU of worker + PostgreSQL a run, ms"),
        "the worker waited for a core, ms a run",
    )
    report.table(
        *("idle", "Connections to PostgreSQL; goal: waiting runs need none"),
        *("waiting runs", "connections", "runs that a worker holds"),
    )
    conf = {"track_commit_timestamp": "on"}
    with measured_server(conf) as server, api(server) as port, worker(server, {}) as pid:
        key = asyncio.run(new_tenant(server, "agents"))
        measured = Measured(server, psutil.Process(pid))
        asyncio.run(measure(report, port, key, measured, 10 if short else 1))
    report.finish(write=not short)


@dataclass(frozen=True)
class Measured:
    """The processes whose CPU time is read."""

    server: MeasuredServer
    worker: psutil.Process

    def waited_seconds(self) -> float:
        """How long the threads of the worker were ready to run and had no core."""
        files = Path(f"/proc/{self.worker.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[1]) for each in files) / 1e9

    async def cpu_seconds(self) -> float:
        return process_cpu_seconds(self.worker) + await self.server.cpu_seconds()


async def measure(report: Report, port: int, key: str, measured: Measured, divisor: int) -> None:
    data = load(DEFAULT / "en-xquad")
    admin = await connect(measured.server.url("postgres"))
    async with AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {key}"},
        timeout=300,
        limits=Limits(max_connections=None),
    ) as client:
        await load_pages(report, client, data, PAGES // divisor)
        queries = list(data.queries.values())
        for count in (1, RUNS // divisor):
            await follow_runs(report, client, queries[: RUNS // divisor], admin, measured, count)
        await count_connections(report, admin, 0)
        runs = [await start(client, UNKNOWN) for _ in range(RUNS // divisor)]
        await asyncio.gather(*(follow(client, run["id"]) for run in runs))
        await asyncio.sleep(15)  # idle connections of the pools are closed meanwhile, if ever
        await count_connections(report, admin, len(runs))
    await admin.close()


async def load_pages(report: Report, client: AsyncClient, data: RetrievalSet, pages: int) -> None:
    texts = list(data.documents.values())
    documents = [
        make_pdf([texts[n % len(texts)] for n in range(start, start + PAGES_PER_DOCUMENT)])
        for start in range(0, pages, PAGES_PER_DOCUMENT)
    ]
    (await client.post("/api/v1/collections", json={"name": "books"})).raise_for_status()
    since = time.perf_counter()
    for number, content in enumerate(documents):
        answer = await client.post(
            "/api/v1/collections/books/documents",
            params={"source": f"{number}.pdf"},
            content=content,
        )
        answer.raise_for_status()
    url = "/api/v1/collections/books/documents"
    while True:
        rows = (await client.get(url, params={"limit": 200})).json()["items"]
        if all(row["state"] in ("done", "failed") for row in rows):
            break
        await asyncio.sleep(0.1)
    seconds = time.perf_counter() - since
    loaded = sum(row["page_count"] or 0 for row in rows if row["state"] == "done")
    chunks = sum(row["chunk_count"] or 0 for row in rows)
    report.row("load", loaded, chunks, f"{seconds:.1f}", f"{loaded / seconds:.0f}")


async def start(client: AsyncClient, query: str) -> dict[str, Any]:
    answer = await client.post(URL, json={"query": query, "interactive": False})
    answer.raise_for_status()
    return answer.json()


async def follow(client: AsyncClient, run_id: str) -> list[float]:
    """Seconds from each event to its arrival."""
    late: list[float] = []
    async with client.stream("GET", f"{URL}/{run_id}/events") as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                at = datetime.fromisoformat(line.rsplit('"at": "', 1)[1].split('"')[0])
                late.append((datetime.now(UTC) - at).total_seconds())
    return late[1:]  # the first one is older than the stream


async def follow_runs(
    report: Report,
    client: AsyncClient,
    queries: Sequence[str],
    admin: asyncpg.Connection,
    measured: Measured,
    at_once: int,
) -> None:
    """One run for each query. The next one starts when one of those at once has ended."""
    free = asyncio.Semaphore(at_once)
    cpu, since = await measured.cpu_seconds(), time.perf_counter()
    waited = measured.waited_seconds()

    async def one(query: str) -> tuple[str, list[float]]:
        async with free:
            run = await start(client, query)
            return run["id"], await follow(client, run["id"])

    ended = await asyncio.gather(*(one(query) for query in queries))
    seconds = time.perf_counter() - since
    cpu = await measured.cpu_seconds() - cpu
    waited = measured.waited_seconds() - waited
    late = [each * 1000 for _, times in ended for each in times]
    rows = await admin.fetch(TIMES, [run_id for run_id, _ in ended])
    spent = [(row["whole"] * 1000 / row["steps"], row["tools"] / row["steps"]) for row in rows]
    report.row(
        *("runs", at_once, f"{seconds:.1f}", f"{np.percentile(late, 50):.0f}"),
        *(f"{np.percentile(late, 95):.0f}", f"{np.median([step for step, _ in spent]):.0f}"),
        f"{np.median([step - tool for step, tool in spent]):.0f}",
        *(f"{cpu * 1000 / len(queries):.0f}", f"{waited * 1000 / len(queries):.0f}"),
    )


async def count_connections(report: Report, admin: asyncpg.Connection, waiting: int) -> None:
    used = await admin.fetchval(
        "select count(*) from pg_stat_activity where usename like 'hansei%'"
    )
    held = await admin.fetchval("select count(*) from runs where state = 'running'")
    report.row("idle", waiting, used, held)


if __name__ == "__main__":
    typer.run(main)
