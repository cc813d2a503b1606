"""Background work: waiting times, and the memory of a worker."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import asyncpg
import psutil
import typer

from bench.ingest import lines, new_tenant, send
from bench.report import Report
from bench.server import MeasuredServer, api, connect, measured_server, worker
from memory_api.core.ids import to_tenant_id

TOOLS = ("shell", "psql", "curl", "kubectl", "git", "npm", "terraform", "ffmpeg")


@dataclass(frozen=True)
class Form:
    """The size of the measurement."""

    waiting: int
    idle: int
    others: int
    slow: int
    slow_bytes: int


FULL = Form(waiting=10_000, idle=100, others=10, slow=8, slow_bytes=15_000_000)
SHORT = Form(waiting=1_000, idle=20, others=4, slow=4, slow_bytes=10_000_000)


def failures(count: int) -> list[dict[str, Any]]:
    """Failed traces of different tasks, so that each gives a different lesson."""
    return [
        {
            "outcome": "failure",
            "task_description": f"Job {n} of batch {n // 7}",
            "events": [
                {
                    "event_type": "tool_call",
                    "tool_name": TOOLS[n % len(TOOLS)],
                    "content": f"{TOOLS[n % len(TOOLS)]} --job {n} --part {n % 13}",
                },
                {"event_type": "error_event", "content": f"exit status {n % 250 + 1}: no job {n}"},
            ],
        }
        for n in range(count)
    ]


@dataclass
class Lab:
    """A server with an API, and queries on its database."""

    server: MeasuredServer
    port: int
    report: Report
    form: Form

    def tenant(self, slug: str) -> str:
        return asyncio.run(new_tenant(self.server, slug))

    def rows(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        async def ask() -> list[asyncpg.Record]:
            admin = await connect(self.server.url("postgres"))
            try:
                return await admin.fetch(statement, *values)
            finally:
                await admin.close()

        return asyncio.run(ask())

    def one(self, statement: str, *values: Any) -> Any:
        return self.rows(statement, *values)[0][0]

    def until(
        self, condition: Callable[[], bool], seconds: float = 600, every: float = 0.2
    ) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(every)

    def settled(self, slug: str) -> int:
        """The number of finished runs."""
        return self.one(
            "select count(*) from runs where tenant_id = $1 and state = 'done'", to_tenant_id(slug)
        )

    def drained(self, slug: str) -> bool:
        return not self.one(
            "select count(*) from runs where tenant_id = $1 and state in ('queued', 'running')",
            to_tenant_id(slug),
        )

    def waits(self, slug: str) -> list[float]:
        """Milliseconds between creation and start of each first run of a chain, sorted."""
        found = self.rows(
            "select extract(epoch from started_at - created_at) * 1000 from runs"
            " where tenant_id = $1 and kind = 'evaluate' order by 1",
            to_tenant_id(slug),
        )
        return [float(row[0]) for row in found]

    def send(self, key: str, count: int, name: str) -> None:
        send(self.port, key, lines(failures(count), count, name), "always")


def idle(lab: Lab) -> None:
    """Send one trace at a time to an idle worker."""
    key = lab.tenant("idle")
    lab.send(key, 1, "warm")
    lab.until(lambda: lab.drained("idle"))
    for n in range(lab.form.idle):
        lab.send(key, 1, f"one-{n}")
        lab.until(lambda: lab.drained("idle"), every=0.02)
    taken = lab.waits("idle")
    lab.report.row(
        *("figures", "enqueue to start when idle, p50 / p95"),
        f"{taken[len(taken) // 2]:.0f} / {taken[int(len(taken) * 0.95)]:.0f} ms",
        "p95 ≤ 250 ms",
    )


def crowd(lab: Lab, pid: int) -> None:
    """Tenant A has many queued runs while tenant B sends one trace at a time. Also measures the
    worker's memory.
    """
    a, b = lab.tenant("a"), lab.tenant("b")
    jobs = lab.form.waiting
    process = psutil.Process(pid)
    process.suspend()  # so that all runs of A are queued before B starts
    for part in range(0, jobs, 1_000):
        lab.send(a, min(1_000, jobs - part), f"a-{part}")
    process.resume()
    since = time.perf_counter()
    for n in range(lab.form.others):
        lab.send(b, 1, f"b-{n}")
        lab.until(lambda: lab.drained("b"), every=0.1)
    lab.report.row(
        *("figures", f"longest wait of B while A has {jobs:,} queued runs, of {lab.form.others}"),
        *(f"{max(lab.waits('b')):.0f} ms", "≤ 5 s"),
    )
    lab.until(lambda: lab.settled("a") >= jobs // 10)
    before, most = resident(process), 0.0
    while lab.settled("a") < jobs:
        most = max(most, resident(process))
        time.sleep(0.5)
    seconds = time.perf_counter() - since
    done = lab.settled("a")
    after = resident(process)
    reflected = lab.one(
        "select count(*) from runs where tenant_id = $1 and state = 'done' and kind = 'reflect'",
        to_tenant_id("a"),
    )
    lab.report.row(
        *("figures", "memory of a worker after 10 % of the runs, after all, and maximum"),
        f"{before:.0f}, {after:.0f}, {most:.0f} MB ({after / before - 1:+.1%})",
        "≤ 5 % growth",
    )
    lab.report.row(
        *("figures", f"with rules, one worker of 4: runs/s over {done:,}, reflections of them"),
        *(f"{done / seconds:.0f}, {reflected:,}", ""),
    )


def slow_neighbor(lab: Lab, pid: int) -> None:
    """Tenant A learns from traces that take seconds of analysis each, while tenant B sends one
    small trace at a time.
    """
    a, b = lab.tenant("slow"), lab.tenant("neighbor")
    output = "Error: no such column, see line 17 of the report\n" * (lab.form.slow_bytes // 49)
    events = [
        {"event_type": "tool_call", "tool_name": "shell", "content": "make report"},
        {"event_type": "tool_response", "tool_name": "shell", "content": output},
        {"event_type": "error_event", "content": "The report failed."},
    ]
    lab.send(lab.tenant("warm"), 1, "warm")  # until the worker has started
    lab.until(lambda: lab.drained("warm"))
    process = psutil.Process(pid)
    process.suspend()  # so that all traces of A are queued before B starts
    for n in range(lab.form.slow):
        trace = {"task_description": f"report {n}", "outcome": "failure", "events": events}
        send(lab.port, a, lines([trace], 1, f"slow-{n}"), "always")
    process.resume()
    sent = 0
    while not lab.drained("slow"):
        lab.send(b, 1, f"small-{sent}")
        lab.until(lambda: lab.drained("neighbor"), every=0.05)
        sent += 1
    slowest = lab.one(
        "select max(extract(epoch from finished_at - started_at)) from runs where tenant_id = $1",
        to_tenant_id("slow"),
    )
    total = lab.one(
        "select max(extract(epoch from finished_at - created_at)) from runs where tenant_id = $1",
        to_tenant_id("neighbor"),
    )
    mb = lab.form.slow_bytes // 1_000_000
    lab.report.row(
        *("figures", f"longest wait of B beside {lab.form.slow} traces of {mb} MB of A, of {sent}"),
        *(f"{max(lab.waits('neighbor')):.0f} ms", "≤ 2 s"),
    )
    lab.report.row(
        *("figures", "longest run of B meanwhile, with its wait; longest run of A"),
        *(f"{float(total):.2f} s; {float(slowest):.1f} s", ""),
    )


def resident(process: psutil.Process) -> float:
    return process.memory_info().rss / 2**20


def main(short: Annotated[bool, typer.Option(help="A tenth, writes no file.")] = False) -> None:
    report = Report(
        "work",
        "One API process, one worker process, small failed traces, the rules engine. "
        f"{platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, load {os.getloadavg()[0]:.1f} at the start. A trace takes "
        "two runs here (evaluate, reflect); a job is a run.",
    )
    report.table("figures", "Work", "what", "figure", "goal")
    with measured_server() as server, api(server) as port:
        lab = Lab(server, port, report, SHORT if short else FULL)
        with worker(server, {}) as pid:
            idle(lab)
            slow_neighbor(lab, pid)
            crowd(lab, pid)
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
