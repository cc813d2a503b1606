"""Minutes of mixed load by many tenants: errors, memory, connections and back-pressure."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import asyncpg
import httpx2
import numpy as np
import psutil
import typer

from bench.data import real_traces
from bench.harness import (
    MeasuredServer,
    Report,
    api,
    api_process,
    connect,
    describe_machine,
    measured_server,
    resident,
    worker,
)
from bench.mixed_load import (
    MAX_IN_FLIGHT,
    MIX,
    NOT_ERRORS,
    PLAYBOOK,
    Client,
    Load,
    Tenants,
    create_tenants,
    send_large_bodies,
)
from bench.model_stub import asks, stub
from memory_api.core.ids import to_tenant_id

POOL_SIZE = 10
QUEUE_CONNECTIONS = 4
"""Connections of a worker in addition to its pool."""
WARM_UP_SHARE = 0.25
MAX_RESIDENT_MB = 400
SETTLED = (
    "select count(*) from runs where kind in ('evaluate', 'reflect', 'curate', 'apply')"
    " and state in ('queued', 'running')"
)


@dataclass
class Sampler:
    """Reads memory and connections every second."""

    admin: asyncpg.Connection
    processes: dict[str, psutil.Process]
    started: float = field(default_factory=time.monotonic)
    resident: dict[str, list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Seconds since the start, and MB, by process."""
    helpers: Counter[str] = field(default_factory=Counter)
    """The most private MB of the processes for large inputs together, by process."""
    helper_counts: Counter[str] = field(default_factory=Counter)
    """The most processes for large inputs at once, by process."""
    connections: Counter[str] = field(default_factory=Counter)
    """The most connections of a role."""
    waiting: int = 0
    """The most runs that waited."""

    async def run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(1)

    async def sample(self) -> None:
        now = time.monotonic() - self.started
        for name, process in self.processes.items():
            self.resident[name].append((now, resident(process)))
            helpers = process.children(recursive=True)
            self.helper_counts[name] = max(self.helper_counts[name], len(helpers))
            size = round(sum(map(private, helpers)))
            self.helpers[name] = max(self.helpers[name], size)
        for role, count in await self.admin.fetch(
            "select usename, count(*) from pg_stat_activity where usename like 'hansei%' group by 1"
        ):
            self.connections[role] = max(self.connections[role], count)
        self.waiting = max(self.waiting, await self.admin.fetchval(SETTLED))

    def peak(self, name: str) -> float:
        """The highest resident memory of a process since its start, as Linux records it."""
        with suppress(OSError):
            status = Path(f"/proc/{self.processes[name].pid}/status").read_text(encoding="utf8")
            return int(status.split("VmHWM:")[1].split()[0]) / 1024
        return max(size for _, size in self.resident[name])

    def growth(self, name: str, since: float, until: float) -> float:
        """Growth between two times by the line of least squares, as a share of its start."""
        found = [(at, size) for at, size in self.resident[name] if since <= at <= until]
        slope, start = np.polyfit(*zip(*found, strict=True), 1)
        return float(slope * (until - since) / (start + slope * since))


def private(process: psutil.Process) -> float:
    """MB that the process does not share with others; 0 if it has ended."""
    try:
        return process.memory_full_info().uss / 2**20
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0


async def drain(admin: asyncpg.Connection, seconds: float = 300) -> float:
    """Seconds until no run of learning waits. Raises TimeoutError."""
    since = time.monotonic()
    async with asyncio.timeout(seconds):
        while await admin.fetchval(SETTLED):  # noqa: ASYNC110 - other processes work
            await asyncio.sleep(0.5)
    return time.monotonic() - since


async def lost(admin: asyncpg.Connection, client: Client) -> tuple[int, int]:
    """How many acknowledged traces are not stored, and how many runs failed."""
    stored = {
        row["tenant_id"]: row["count"]
        for row in await admin.fetch("select tenant_id, count(*) from traces group by 1")
    }
    missing = sum(
        max(0, count - stored.get(to_tenant_id(slug), 0))
        for slug, count in client.acknowledged.items()
    )
    return missing, await admin.fetchval(
        "select count(*) from runs where state in ('failed', 'dead')"
    )


@dataclass
class Form:
    minutes: float
    tenants: int
    rate: float


async def soak(server: MeasuredServer, report: Report, form: Form, port: int, pid: int) -> None:
    keys = await create_tenants(server, form.tenants)
    admin = await connect(server.url("postgres"))
    base = f"http://127.0.0.1:{port}/api/v1"
    limits = httpx2.Limits(max_connections=MAX_IN_FLIGHT + 4)
    async with httpx2.AsyncClient(base_url=base, timeout=60, limits=limits) as http:
        client = Client(http)
        for key in keys.values():
            body = {"content": "Before `refund`, check the role of the account."}
            await client.ask("prepare", key, "POST", f"/playbooks/{PLAYBOOK}/bullets", json=body)
        load = Load(client, Tenants(keys, random.Random(0)), form.rate, real_traces())
        observer = await connect(server.url("postgres"))  # reads while `admin` works
        sampler = Sampler(observer, {"API": api_process(), "worker": psutil.Process(pid)})
        sampling = asyncio.create_task(sampler.run())
        seconds = form.minutes * 60
        start = time.monotonic()
        warm = start + seconds * WARM_UP_SHARE
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run(start + seconds))
            await asyncio.sleep(seconds * WARM_UP_SHARE / 2)
            await send_large_bodies(load)
        drained = await drain(admin)
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        await observer.close()
        await report_costs(report, client, sampler, admin)
        sampler_end = start + seconds - sampler.started
        report_memory(report, sampler, warm - sampler.started, sampler_end)
        missing, dead = await lost(admin, client)
    await admin.close()
    report_requests(report, client)
    figures(report, client, sampler, load, drained)
    report.row("figures", "acknowledged traces that are missing", missing, 0)
    report.row("figures", "runs that failed", dead, 0)


def report_memory(report: Report, sampler: Sampler, warm: float, end: float) -> None:
    for name, samples in sampler.resident.items():
        at = [min(samples, key=lambda sample, t=t: abs(sample[0] - t))[1] for t in (warm, end)]
        report.row(
            *("memory", name, f"{samples[0][1]:.0f}", f"{at[0]:.0f}", f"{at[1]:.0f}"),
            *(f"{sampler.peak(name):.0f}", f"{sampler.growth(name, warm, end):+.1%}"),
            f"{sampler.helper_counts[name]} with {sampler.helpers[name]} MB",
        )


async def report_costs(
    report: Report, client: Client, sampler: Sampler, admin: asyncpg.Connection
) -> None:
    """CPU time and disk space of a request and a trace, which `docs/operations.md` calculates
    with.
    """
    traces = client.acknowledged.total()
    requests = sum(client.statuses.values())
    for name, count, of in (("API", requests, "request"), ("worker", traces, "trace")):
        times = sampler.processes[name].cpu_times()
        spent = (times.user + times.system) / count * 1000
        report.row("figures", f"CPU of the {name} per {of}, ms", f"{spent:.1f}", "")
    size = await admin.fetchval("select pg_database_size(current_database())")
    report.row("figures", "size of the database per trace, kB", f"{size / traces / 1000:.0f}", "")


def report_requests(report: Report, client: Client) -> None:
    for name, taken in client.seconds.items():
        bad = {s: n for (of, s), n in client.statuses.items() if of == name and s not in NOT_ERRORS}
        shown = ", ".join(f"{status}: {n}" for status, n in bad.items() if n) or "0"
        p50, p95 = np.percentile(taken, (50, 95)) * 1000
        report.row("requests", name, f"{len(taken):,}", shown, f"{p50:.0f}", f"{p95:.0f}")


def figures(report: Report, client: Client, sampler: Sampler, load: Load, drained: float) -> None:
    sent = sum(client.statuses.values())
    report.row("figures", "error rate", f"{client.failed() / sent:.3%} of {sent:,}", "0")
    for role, most in sorted(sampler.connections.items()):
        goal = POOL_SIZE + (QUEUE_CONNECTIONS if role == "hansei_worker" else 0)
        report.row("figures", f"most connections of {role}", most, f"≤ {goal}")
    report.row("figures", "most runs that waited", f"{sampler.waiting:,}", "")
    report.row("figures", "seconds until the queue is empty after the load", f"{drained:.1f}", "")
    report.row("figures", f"requests delayed by {MAX_IN_FLIGHT} in flight", load.waits, "")
    for problem in client.problems[:5]:
        report.row("figures", "problem", problem, "")


def main(
    minutes: Annotated[float, typer.Option(help="Length of the load.")] = 10,
    tenants: Annotated[int, typer.Option(help="Number of tenants.")] = 200,
    rate: Annotated[float, typer.Option(help="Requests per second.")] = 20,
    short: Annotated[bool, typer.Option(help="One minute, 40 tenants, writes no file.")] = False,
) -> None:
    form = Form(1, 40, rate) if short else Form(minutes, tenants, rate)
    mix = ", ".join(f"{share} % {kind}" for kind, share in MIX.items())
    report = Report(
        "soak",
        f"{form.tenants} tenants, {form.rate:g} requests per second for {form.minutes:g} minutes, "
        f"on one API process and one worker with a stub model of 200 ms: {mix}. Real traces of "
        "about 9 kB. After an eighth of the time, two bodies of 30 MB. The growth of memory "
        f"is that of the line of least squares over the last {1 - WARM_UP_SHARE:.0%} of the load. "
        f"{describe_machine()}",
    )
    report.table(
        *("memory", f"Resident MB; goals: growth ≤ 1 %, maximum ≤ {MAX_RESIDENT_MB} MB"),
        *("process", "start", "after warm-up", "end", "maximum", "growth"),
        "processes for large inputs, in addition",
    )
    report.table("requests", "Requests", "kind", "count", "errors", "p50, ms", "p95, ms")
    report.table("figures", "Figures", "what", "figure", "goal")
    with measured_server() as server, stub() as url:
        settings = {**asks(url), "HANSEI_POOL_SIZE": str(POOL_SIZE)}
        with api(server, settings) as port, worker(server, settings) as pid:
            asyncio.run(soak(server, report, form, port, pid))
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
