"""Learning: `python -m bench learn [--short]`.

How many traces a second are learnt from by rules; how near a model that takes 500 ms comes to the
ideal with 16 calls at a time, and what it costs in calls and tokens; what one lesson costs the
curator as the playbook grows. Brings its own PostgreSQL and workers.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import os
import platform
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Annotated, Any
from uuid import UUID

import psutil
import typer
import uvloop

from apps.memory_api.core.settings import Settings
from apps.memory_api.core.telemetry import configure
from apps.memory_api.curator.run import curate, merge
from apps.memory_api.curator.schemas import Lesson
from apps.memory_api.playbook.import_export import put_playbook
from apps.memory_api.playbook.rows import Author, Place
from apps.memory_api.runtime import Runtime, open_runtime
from apps.memory_api.tenants.identity import tenant_id_of
from bench.corpus import documents
from bench.ingest import lines, new_tenant, real_traces, send
from bench.server import MeasuredServer, api, connect, measured_server, worker
from bench.tables import Report
from tests.stub_provider import Answer, Call, StubProvider, answer

CALLS = 16
"""Calls of the model under way at once, of all workers together."""
SEATS = 64
"""Runs at once: there is one whose prompt is ready when a call ends."""
MANY = 480
"""Traces that show how near the ideal is: they take the model half a minute."""
DELAY = 0.5
"""Seconds the stub takes to answer."""
PLACE = Place("default", "main")


def main(
    short: Annotated[bool, typer.Option(help="Fewer traces, writes no file.")] = False,
) -> None:
    configure("console", "error")
    report = Report(
        "learn",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f} at the start. Real traces with an outcome; "
        "each goes evaluate → reflect → curate → merge. PostgreSQL, workers and stub share the "
        "machine.",
    )
    with measured_server() as server:
        by_rules(server, report, 48 if short else 200)
        by_model(server, report, 48 if short else MANY)
        uvloop.run(as_it_grows(server, report, (100, 1_000) if short else (100, 1_000, 10_000)))
    report.finish(write=not short)


# The whole chain


@dataclass(frozen=True)
class Form:
    """Workers that share the seats, and playbooks that share the traces: changes of one playbook
    wait for each other.
    """

    processes: int
    playbooks: int

    def __str__(self) -> str:
        return f"{self.processes} × {SEATS // self.processes}"


FORMS = (Form(1, 1), Form(2, 1), Form(2, 16))
LAST = FORMS[-1]


def by_rules(server: MeasuredServer, report: Report, count: int) -> None:
    report.table(
        *("rules", "The whole chain by rules", "workers × seats", "playbooks", "traces"),
        *("runs done", "bullets", "s", "traces/s", "CPU of the workers a trace, ms"),
    )
    for form in FORMS:
        slug = f"rules-{form.processes}-{form.playbooks}"
        seconds, busy = learnt(server, slug, form, count, {"HANSEI_LLM_PROVIDER": "none"})
        done = asyncio.run(settled(server, slug))
        report.row(
            *("rules", form, form.playbooks, count, done["runs"], done["bullets"]),
            *(f"{seconds:.1f}", f"{count / seconds:.1f}", f"{busy / count * 1000:.0f}"),
        )


def by_model(server: MeasuredServer, report: Report, count: int) -> None:
    goal = "; goal 85 %" if count >= MANY else ""  # of few traces most are start and end
    report.table(
        *("model", f"A model that takes {DELAY * 1000:.0f} ms, {CALLS} calls at a time{goal}"),
        *("workers × seats", "playbooks", "traces", "dead", "calls", "ideal, s", "s"),
        *("share of the ideal", "CPU of the workers a trace, ms"),
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
        with stub() as url:
            seconds, busy = learnt(server, slug, form, count, asks(url))
        done = asyncio.run(settled(server, slug))
        ideal = done["calls"] * DELAY / CALLS
        report.row(
            *("model", form, form.playbooks, count, done["dead"], done["calls"]),
            *(f"{ideal:.1f}", f"{seconds:.1f}", f"{ideal / seconds:.0%}"),
            f"{busy / count * 1000:.0f}",
        )
    for step in asyncio.run(steps(server, slug)):
        report.row("steps", *step)
    for purpose, calls, prompt, cached, said in asyncio.run(spent(server, slug)):
        report.row(
            *("cost", purpose, f"{calls / count:.2f}", f"{prompt / count:,.0f}"),
            *(f"{cached / max(1, prompt):.0%}", f"{said / count:,.0f}"),
        )


def learnt(
    server: MeasuredServer, slug: str, form: Form, count: int, settings: dict[str, str]
) -> tuple[float, float]:
    """Send `count` traces of a new tenant, and learn from them. Answers seconds from the first run
    taken to the last one settled, by the database's clock, and the CPU seconds of the workers
    meanwhile: their start is not learning.
    """
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
        return asyncio.run(_watch(server, slug, [psutil.Process(pid) for pid in pids]))


async def _watch(
    server: MeasuredServer, slug: str, workers: Sequence[psutil.Process]
) -> tuple[float, float]:
    admin = await connect(server.url("postgres"))
    mine = "from runs where tenant_id = $1 and trace_id is not null"
    begun = f"select exists (select {mine} and started_at is not null)"
    at_work = f"select exists (select {mine} and state in ('queued', 'running'))"
    tenant = tenant_id_of(slug)
    while not await admin.fetchval(begun, tenant):  # noqa: ASYNC110 - other processes work
        await asyncio.sleep(0.05)
    before = _busy(workers)
    while await admin.fetchval(at_work, tenant):  # noqa: ASYNC110
        await asyncio.sleep(0.25)
    taken = f"select extract(epoch from max(finished_at) - min(started_at)) {mine}"
    seconds = float(await admin.fetchval(taken, tenant))
    await admin.close()
    return seconds, _busy(workers) - before


def _busy(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def named(count: int, slug: str, playbooks: int) -> bytes:
    """Real traces that had an outcome, dealt out to playbooks by turns."""
    told = [trace for trace in real_traces() if trace.get("outcome")]
    dealt = [{**trace, "playbook": f"p{n % playbooks}"} for n, trace in enumerate(told)]
    return lines(dealt, count, slug)


def asks(url: str) -> dict[str, str]:
    return {
        "HANSEI_LLM_PROVIDER": "anthropic",
        "HANSEI_ANTHROPIC_API_KEY": "stub",
        "HANSEI_ANTHROPIC_BASE_URL": url,
    }


async def settled(server: MeasuredServer, slug: str) -> dict[str, int]:
    admin = await connect(server.url("postgres"))
    row = await admin.fetchrow(
        "select (select count(*) from runs where tenant_id = $1 and state = 'done') as runs,"
        " (select count(*) from runs where tenant_id = $1 and state = 'dead') as dead,"
        " (select count(*) from llm_calls where tenant_id = $1) as calls,"
        " (select count(*) from memories where tenant_id = $1 and kind = 'bullet') as bullets",
        tenant_id_of(slug),
    )
    await admin.close()
    return dict(row)


async def steps(server: MeasuredServer, slug: str) -> list[tuple[str, ...]]:
    """Of each kind of run: how many, attempts, how long it waited for a seat, how long it took."""
    admin = await connect(server.url("postgres"))
    rows = await admin.fetch(
        "select kind, count(*), sum(attempts), percentile_cont(0.5) within group (order by waited),"
        " percentile_cont(array[0.5, 0.95]) within group (order by worked) from (select kind,"
        " attempts, extract(epoch from started_at - created_at) * 1000 as waited,"
        " extract(epoch from finished_at - started_at) * 1000 as worked from runs"
        " where tenant_id = $1 and trace_id is not null and state = 'done') one"
        " group by kind order by min(waited) desc",
        tenant_id_of(slug),
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
        tenant_id_of(slug),
    )
    await admin.close()
    return [tuple(row) for row in rows]


# The model: a process of its own, so that it does not take the workers' time


@contextmanager
def stub() -> Iterator[str]:
    """A provider that answers after `DELAY`; its Anthropic address."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(10)


def _serve(pipe: Connection) -> None:
    with StubProvider(delay=DELAY) as provider:
        provider.behave = Thinker()
        pipe.send(provider.anthropic_url)
        pipe.recv()


class Thinker:
    """Answers in the shape that is asked for, each time with another real text as its lesson."""

    def __init__(self) -> None:
        self.lessons = itertools.cycle(documents(5_000, seed=11))

    def __call__(self, call: Call) -> Answer:
        if "reflection" in (call.schema or {}).get("properties", {}):
            lesson = next(self.lessons)
            return answer(
                {
                    "reflection": f"The run went as it did because of this: {lesson}",
                    "strategy": lesson,
                    "importance": 0.6,
                    "confidence": 0.7,
                    "tags": ["bench"],
                    "source_event_ids": [],
                    "verdicts": [],
                }
            )
        taught = re.findall(r"^(\d+)\. \(\w+\) (.+)$", call.user, re.MULTILINE)
        return answer(
            {
                "reasoning": "They are new.",
                "operations": [
                    {"type": "ADD", "lessons": [int(n)], "content": text, "reasoning": "It is new."}
                    for n, text in taught
                ],
            }
        )


# The curator


async def as_it_grows(server: MeasuredServer, report: Report, sizes: Sequence[int]) -> None:
    """One lesson at a time into playbooks of several sizes, by rules: the model's time is not the
    curator's.
    """
    report.table(
        *("grows", "One lesson for the curator, by rules; goal: within 2 × from 100 to 10,000"),
        *("bullets", "curate, ms (p50)", "merge, ms (p50)", "both", "beside the smallest"),
    )
    settings = Settings(_env_file=None, llm_provider="none")  # type: ignore[call-arg]
    first: float | None = None
    for size in sizes:
        slug = f"grows-{size}"
        await new_tenant(server, slug)
        async with open_runtime(settings, server.url("hansei_app")) as runtime:
            await fill(runtime, tenant_id_of(slug), size)
            admin = await connect(server.url("postgres"))
            await admin.execute("vacuum (analyze)")
            await admin.close()
            thought, merged = await curated(runtime, tenant_id_of(slug), 40)
        both = thought + merged
        first = first or both
        report.row("grows", f"{size:,}", f"{thought:.1f}", f"{merged:.1f}", f"{both:.1f}",
                   f"{both / first:.2f} ×")  # fmt: skip


async def fill(runtime: Runtime, tenant_id: UUID, size: int) -> None:
    """A playbook of `size` bullets, by the service's own import."""
    bullets = [
        {"id": f"pat-{n:05d}", "section": "PATTERNS", "content": text}
        for n, text in enumerate(dict.fromkeys(documents(size + size // 50, seed=5)), start=1)
    ]
    await put_playbook(
        runtime, tenant_id, PLACE, json.dumps({"bullets": bullets[:size]}), Author("bench")
    )


async def curated(runtime: Runtime, tenant_id: UUID, times: int) -> tuple[float, float]:
    """Median milliseconds of curating one new lesson, and of merging what came of it."""
    taken: list[tuple[float, float]] = []
    for text in documents(times, seed=23):
        begun = time.perf_counter()
        curation = await curate(runtime, tenant_id, PLACE, [Lesson(text=text)], run_id=None)
        thought = time.perf_counter()
        await merge(runtime, tenant_id, PLACE, curation, Author("curator"))
        taken.append((thought - begun, time.perf_counter() - thought))
    first, second = zip(*taken[times // 4 :], strict=True)  # the first ones warm up
    return statistics.median(first) * 1000, statistics.median(second) * 1000


if __name__ == "__main__":
    typer.run(main)
