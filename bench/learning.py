"""The learning loop: `python -m bench learning [--short]`.

Measures traces per second with the rules engine; the throughput with a model that takes 500 ms and
16 concurrent calls, as a share of the ideal, with its calls and tokens; and the time that the
curator needs for one lesson as a playbook grows. Starts its own PostgreSQL and workers.

The ideal is the time in which the model answers all calls that were made if 16 are always at work:
calls × 0.5 s / 16. It leaves out that the last curation follows the last reflection (0.5 s) and the
CPU time of Hansei, so that few traces cannot reach it. What the cores of this machine allow is the
bound that follows from this CPU time: workers, PostgreSQL and stub share them.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import psutil
import typer
import uvloop

from bench.corpus import documents
from bench.ingest import lines, new_tenant, real_traces, send
from bench.model_stub import DELAY, asks, stub
from bench.report import Report
from bench.server import (
    MeasuredServer,
    api,
    connect,
    measured_server,
    process_cpu_seconds,
    worker,
)
from memory_api.bootstrap import open_runtime
from memory_api.core.ids import to_tenant_id
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.curation.apply import apply_plan
from memory_api.curation.curate import curate
from memory_api.curation.schemas import Lesson
from memory_api.playbooks.formats.transfer import replace_playbook
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.runtime import Runtime

CALLS = 16
"""Concurrent model calls of all workers."""
MANY_CALLS = 64
"""For this number only the bound is computed."""
SEATS = 64
"""Concurrent runs of all workers. More than the calls, so that a prompt is always ready."""
MANY = 480
"""Number of traces; the model needs half a minute for them."""
RULES_TRACES = 551
"""Number of traces for the rules: all sample traces."""
PLACE = PlaybookRef("default", "main")


def main(
    short: Annotated[bool, typer.Option(help="Fewer traces, writes no file.")] = False,
) -> None:
    configure_logging("console", "error")
    report = Report(
        "learning",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f} at the start. Real traces with an outcome; "
        "each goes through evaluate → reflect → curate → apply. PostgreSQL, workers and stub "
        "share the machine.",
    )
    with measured_server() as server:
        by_rules(server, report, 48 if short else RULES_TRACES)
        by_model(server, report, 48 if short else MANY)
        in_batches(server, report)
        uvloop.run(as_it_grows(server, report, (100, 1_000) if short else (100, 1_000, 10_000)))
    report.finish(write=not short)


# The whole chain


@dataclass(frozen=True)
class Form:
    """Number of worker processes that share the slots, and of playbooks that share the traces.
    Changes of one playbook are serialized.
    """

    processes: int
    playbooks: int

    def __str__(self) -> str:
        return f"{self.processes} × {SEATS // self.processes}"


FORMS = (Form(1, 1), Form(2, 1), Form(2, 16))
LAST = FORMS[-1]
BATCHES = ((4, 16), (16, 8), (16, 3))
"""Playbooks, and traces of each. With three traces the first lesson is curated alone."""


def by_rules(server: MeasuredServer, report: Report, count: int) -> None:
    report.table(
        *("rules", "The whole chain by rules", "workers × slots", "playbooks", "traces"),
        *("runs done", "bullets", "s", "traces/s"),
        *("CPU of the workers a trace, ms", "CPU of PostgreSQL a trace, ms", "traces/s of 2 cores"),
    )
    for form in FORMS:
        slug = f"rules-{form.processes}-{form.playbooks}"
        taken = learnt(server, slug, form, count, {"HANSEI_LLM_PROVIDER": "none"})
        done = asyncio.run(settled(server, slug))
        report.row(
            *("rules", form, form.playbooks, count, done["runs"], done["bullets"]),
            *(f"{taken.seconds:.1f}", f"{count / taken.seconds:.1f}"),
            *(f"{taken.worker_cpu / count * 1000:.1f}", f"{taken.server_cpu / count * 1000:.1f}"),
            f"{2 * count / (taken.worker_cpu + taken.server_cpu):.0f}",
        )


def by_model(server: MeasuredServer, report: Report, count: int) -> None:
    goal = "; goal 85 %" if count >= MANY else ""  # of few traces most are start and end
    report.table(
        *("model", f"A model that takes {DELAY * 1000:.0f} ms, {CALLS} calls at a time{goal}"),
        *("workers × slots", "playbooks", "traces", "dead", "calls", "ideal, s", "s"),
        *("share of the ideal", "CPU a trace, ms: workers", "PostgreSQL", "stub"),
        f"share that {os.cpu_count()} cores allow, {CALLS} / {MANY_CALLS} calls",
    )
    report.table(
        *("steps", f"Where the time goes: the steps of {LAST}, {LAST.playbooks} playbooks"),
        *("step", "runs", "attempts", "waiting, ms (p50)", "working, ms (p50 / p95)"),
    )
    report.table(
        *("cost", "What the model is asked (tokens as the stub counts them: characters / 4)"),
        *("purpose", "calls a trace", "prompt tokens a trace", "of these cached", "answer tokens"),
    )
    slug = ""
    for form in FORMS:
        slug = f"model-{form.processes}-{form.playbooks}"
        with stub() as (url, pid):
            taken = learnt(server, slug, form, count, asks(url), stub_pid=pid)
        done = asyncio.run(settled(server, slug))
        ideal = done["calls"] * DELAY / CALLS
        cpu = (taken.worker_cpu, taken.server_cpu, taken.stub_cpu)
        bounds = (allowed_share(sum(cpu), done["calls"], calls) for calls in (CALLS, MANY_CALLS))
        report.row(
            *("model", form, form.playbooks, count, done["dead"], done["calls"]),
            *(f"{ideal:.1f}", f"{taken.seconds:.1f}", f"{ideal / taken.seconds:.0%}"),
            *(f"{seconds / count * 1000:.0f}" for seconds in cpu),
            " / ".join(f"{bound:.0%}" for bound in bounds),
        )
    for step in asyncio.run(steps(server, slug)):
        report.row("steps", *step)
    for purpose, calls, prompt, cached, said in asyncio.run(spent(server, slug)):
        report.row(
            *("cost", purpose, f"{calls / count:.2f}", f"{prompt / count:,.0f}"),
            *(f"{cached / max(1, prompt):.0%}", f"{said / count:,.0f}"),
        )


def allowed_share(cpu_seconds: float, call_count: int, calls: int) -> float:
    """The share of the ideal with so many calls at a time that the cores of this machine allow."""
    ideal = call_count * DELAY / calls
    return min(1.0, ideal / (cpu_seconds / (os.cpu_count() or 1)))


def in_batches(server: MeasuredServer, report: Report) -> None:
    """Calls of the curator with few traces for each playbook."""
    report.table(
        *("batches", "The curator under load; goal: at most 1 call for 4 traces"),
        *("playbooks", "traces of each", "lessons", "calls of the curator", "calls a trace"),
    )
    for playbooks, traces in BATCHES:
        slug = f"batches-{playbooks}-{traces}"
        with stub() as (url, _):
            learnt(server, slug, Form(2, playbooks), playbooks * traces, asks(url))
        calls = {purpose: n for purpose, n, *_ in asyncio.run(spent(server, slug))}
        report.row(
            *("batches", playbooks, traces, calls["reflect"], calls["curate"]),
            f"{calls['curate'] / (playbooks * traces):.2f}",
        )


@dataclass(frozen=True)
class Taken:
    """Seconds from the start of the first run to the end of the last, by the database's clock, and
    the CPU seconds of the workers, of PostgreSQL and of the stub in this time.
    """

    seconds: float
    worker_cpu: float
    server_cpu: float
    stub_cpu: float


def learnt(
    server: MeasuredServer,
    slug: str,
    form: Form,
    count: int,
    settings: dict[str, str],
    *,
    stub_pid: int | None = None,
) -> Taken:
    """Send `count` traces of a new tenant and wait until they are processed."""
    with api(server) as port:
        key = asyncio.run(new_tenant(server, slug))
        send(port, key, named(count, slug, form.playbooks), "always")
    seats = {
        "HANSEI_WORKER_CONCURRENCY": str(SEATS // form.processes),
        "HANSEI_LLM_CONCURRENCY": str(CALLS // form.processes),
    }
    with ExitStack() as stack:
        pids = [
            stack.enter_context(worker(server, settings | seats)) for _ in range(form.processes)
        ]
        workers = [psutil.Process(pid) for pid in pids]
        stubs = [psutil.Process(stub_pid)] if stub_pid else []
        return asyncio.run(_watch(server, slug, workers, stubs))


async def _watch(
    server: MeasuredServer,
    slug: str,
    workers: Sequence[psutil.Process],
    stubs: Sequence[psutil.Process],
) -> Taken:
    admin = await connect(server.url("postgres"))
    mine = "from runs where tenant_id = $1 and trace_id is not null"
    begun = f"select exists (select {mine} and started_at is not null)"
    at_work = f"select exists (select {mine} and state in ('queued', 'running'))"
    tenant = to_tenant_id(slug)
    while not await admin.fetchval(begun, tenant):  # noqa: ASYNC110 - other processes work
        await asyncio.sleep(0.05)
    before, server_before = sum(map(process_cpu_seconds, workers)), await server.cpu_seconds()
    stub_before = sum(map(process_cpu_seconds, stubs))
    while await admin.fetchval(at_work, tenant):  # noqa: ASYNC110
        await asyncio.sleep(0.25)
    worker_cpu = sum(map(process_cpu_seconds, workers)) - before
    server_cpu = await server.cpu_seconds() - server_before
    stub_cpu = sum(map(process_cpu_seconds, stubs)) - stub_before
    taken = f"select extract(epoch from max(finished_at) - min(started_at)) {mine}"
    seconds = float(await admin.fetchval(taken, tenant))
    await admin.close()
    return Taken(seconds, worker_cpu, server_cpu, stub_cpu)


def named(count: int, slug: str, playbooks: int, *, prefix: str = "p") -> bytes:
    """Real traces with an outcome, distributed over playbooks named by `prefix` and a number."""
    told = [trace for trace in real_traces() if trace.get("outcome")]
    dealt = [{**trace, "playbook": f"{prefix}{n % playbooks}"} for n, trace in enumerate(told)]
    return lines(dealt, count, slug)


async def settled(server: MeasuredServer, slug: str) -> dict[str, int]:
    admin = await connect(server.url("postgres"))
    row = await admin.fetchrow(
        "select (select count(*) from runs where tenant_id = $1 and state = 'done') as runs,"
        " (select count(*) from runs where tenant_id = $1 and state = 'dead') as dead,"
        " (select count(*) from llm_calls where tenant_id = $1) as calls,"
        " (select count(*) from memories where tenant_id = $1 and kind = 'bullet') as bullets",
        to_tenant_id(slug),
    )
    await admin.close()
    return dict(row)


async def steps(server: MeasuredServer, slug: str) -> list[tuple[str, ...]]:
    """For each kind of run: count, attempts, waiting time and working time."""
    admin = await connect(server.url("postgres"))
    rows = await admin.fetch(
        "select kind, count(*), sum(attempts), percentile_cont(0.5) within group (order by waited),"
        " percentile_cont(array[0.5, 0.95]) within group (order by worked) from (select kind,"
        " attempts, extract(epoch from started_at - created_at) * 1000 as waited,"
        " extract(epoch from finished_at - started_at) * 1000 as worked from runs"
        " where tenant_id = $1 and trace_id is not null and state = 'done') one"
        " group by kind order by min(waited) desc",
        to_tenant_id(slug),
    )
    await admin.close()
    return [
        (kind, f"{runs}", f"{attempts}", f"{waited:.0f}", " / ".join(f"{ms:.0f}" for ms in worked))
        for kind, runs, attempts, waited, worked in rows
    ]


async def spent(server: MeasuredServer, slug: str) -> list[Any]:
    """(purpose, calls, prompt tokens, those of them that were cached, answer tokens)."""
    admin = await connect(server.url("postgres"))
    rows = await admin.fetch(
        "select purpose, count(*), sum(input_tokens), sum(cached_tokens), sum(output_tokens)"
        " from llm_calls where tenant_id = $1 group by purpose order by purpose desc",
        to_tenant_id(slug),
    )
    await admin.close()
    return [tuple(row) for row in rows]


# The curator


async def as_it_grows(server: MeasuredServer, report: Report, sizes: Sequence[int]) -> None:
    """Curate single lessons with the rules engine, for playbooks of several sizes."""
    report.table(
        *(
            "grows",
            "Curating one lesson with the rules engine; goal: at most 2 × from 100 to 10,000",
        ),
        *("bullets", "curate, ms (p50)", "apply, ms (p50)", "both", "relative to the smallest"),
    )
    settings = Settings(_env_file=None, llm_provider="none")  # type: ignore[call-arg]
    first: float | None = None
    for size in sizes:
        slug = f"grows-{size}"
        await new_tenant(server, slug)
        async with open_runtime(settings, server.url("hansei_app")) as runtime:
            await fill(runtime, to_tenant_id(slug), size)
            admin = await connect(server.url("postgres"))
            await admin.execute("vacuum (analyze)")
            await admin.close()
            thought, merged = await curated(runtime, to_tenant_id(slug), 40)
        both = thought + merged
        first = first or both
        report.row("grows", f"{size:,}", f"{thought:.1f}", f"{merged:.1f}", f"{both:.1f}",
                   f"{both / first:.2f} ×")  # fmt: skip


async def fill(runtime: Runtime, tenant_id: UUID, size: int) -> None:
    """Import a playbook of `size` bullets."""
    bullets = [
        {"id": f"pat-{n:05d}", "section": "PATTERNS", "content": text}
        for n, text in enumerate(dict.fromkeys(documents(size + size // 50, seed=5)), start=1)
    ]
    await replace_playbook(
        runtime, tenant_id, PLACE, json.dumps({"bullets": bullets[:size]}), ChangeAuthor("bench")
    )


async def curated(runtime: Runtime, tenant_id: UUID, times: int) -> tuple[float, float]:
    """Median milliseconds to curate one new lesson and to apply its plan."""
    taken: list[tuple[float, float]] = []
    for text in documents(times, seed=23):
        begun = time.perf_counter()
        curation = await curate(runtime, tenant_id, PLACE, [Lesson(text=text)], run_id=None)
        thought = time.perf_counter()
        await apply_plan(runtime, tenant_id, PLACE, curation, ChangeAuthor("curator"))
        taken.append((thought - begun, time.perf_counter() - thought))
    first, second = zip(*taken[times // 4 :], strict=True)  # the first ones warm up
    return statistics.median(first) * 1000, statistics.median(second) * 1000


if __name__ == "__main__":
    typer.run(main)
