"""Minutes of mixed load by many tenants: errors, memory, connections and back-pressure."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import platform
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import asyncpg
import httpx2
import numpy as np
import psutil
import typer

from apps.memory_api.auth.identity import KeyScope, to_tenant_id
from apps.memory_api.auth.queries import create_key, create_tenant
from apps.memory_api.core.db import Sessions, open_engine
from bench.background_work import failures, resident, slow_model
from bench.ingest import api_process, real_traces
from bench.report import Report
from bench.server import MeasuredServer, api, connect, measured_server, worker

QUEUE_LIMIT = 500
"""Waiting runs per tenant, so that a flood reaches the limit in a second."""
POOL_SIZE = 10
QUEUE_CONNECTIONS = 4
"""Connections of a worker in addition to its pool."""
MAX_IN_FLIGHT = 64
"""Requests at one time. Above it, the load waits, and the report says how often."""
WARM_UP_SHARE = 0.25
LARGE_BODY_BYTES = 30 * 2**20
MAX_RESIDENT_MB = 400
NOT_ERRORS = {200, 201, 202, 204}
PLAYBOOK = "desk"
MIX = {"search": 30, "render": 15, "read": 30, "trace": 16, "lines": 3, "reflect": 6}
"""Requests of each kind in 100."""
SETTLED = (
    "select count(*) from runs where kind in ('evaluate', 'reflect', 'curate', 'apply')"
    " and state in ('queued', 'running')"
)


@dataclass
class Client:
    """Sends requests and counts what comes of them."""

    http: httpx2.AsyncClient
    statuses: Counter[tuple[str, int | str]] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: Counter[str] = field(default_factory=Counter)
    """Traces by tenant."""
    problems: list[str] = field(default_factory=list)

    async def ask(
        self, name: str, key: str, method: str, path: str, **content: Any
    ) -> httpx2.Response | None:
        """One request; None if there was no response."""
        since = time.perf_counter()
        headers = {"Authorization": f"Bearer {key}", **content.pop("headers", {})}
        try:
            answer = await self.http.request(method, path, headers=headers, **content)
        except httpx2.HTTPError as error:
            self.statuses[name, type(error).__name__] += 1
            self.problems.append(f"{name}: {error!r}")
            return None
        self.seconds[name].append(time.perf_counter() - since)
        self.statuses[name, answer.status_code] += 1
        if answer.status_code not in {*NOT_ERRORS, 429}:
            self.problems.append(f"{name}: {answer.status_code} {answer.text[:300]}")
        return answer

    def failed(self) -> int:
        return sum(n for (_, status), n in self.statuses.items() if status not in NOT_ERRORS)


@dataclass
class Tenants:
    """API keys by slug. A few tenants send most requests: the weight of the n-th is 1/n."""

    keys: dict[str, str]
    randomly: random.Random
    weights: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.weights = list(itertools.accumulate(1 / n for n in range(1, len(self.keys) + 1)))

    def pick(self) -> tuple[str, str]:
        return self.randomly.choices(list(self.keys.items()), cum_weights=self.weights)[0]


async def create_tenants(server: MeasuredServer, count: int) -> dict[str, str]:
    sessions = Sessions(open_engine(server.url("hansei_owner"), pool_size=1))
    keys: dict[str, str] = {}
    for n in range(count):
        slug = f"soak-{n}"
        async with sessions.for_tenant(to_tenant_id(slug)) as session:
            await create_tenant(session, slug)
            keys[slug] = (await create_key(session, scopes=[KeyScope.ADMIN], name="soak"))[1].text
    await sessions.close()
    return keys


@dataclass
class Load:
    """Requests at a steady rate, of the kinds in `MIX`, by tenants in turn."""

    client: Client
    tenants: Tenants
    rate: float
    traces: Sequence[dict[str, Any]]
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    waits: int = 0

    async def run(self, until: float) -> None:
        """Send requests until `time.monotonic()` reaches `until`, then wait for their answers."""
        room = asyncio.Semaphore(MAX_IN_FLIGHT)
        kinds, weights = list(MIX), list(MIX.values())
        due = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            while due < until:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                self.waits += room.locked()
                await room.acquire()
                kind = self.tenants.randomly.choices(kinds, weights)[0]
                task = tasks.create_task(getattr(self, kind)(*self.tenants.pick()))
                task.add_done_callback(lambda _: room.release())
                due = max(due + self.tenants.randomly.expovariate(self.rate), time.monotonic() - 1)

    def _trace(self) -> dict[str, Any]:
        number = next(self.numbers)
        trace = self.traces[number % len(self.traces)]
        return trace | {"external_id": f"soak-{number}", "playbook": PLAYBOOK}

    def _query(self) -> str:
        return str(self._trace().get("task_description") or "cancel an order")[:300]

    async def search(self, _slug: str, key: str) -> None:
        body = {"query_text": self._query(), "top_k": 10}
        await self.client.ask("search", key, "POST", "/search", json=body)

    async def render(self, _slug: str, key: str) -> None:
        path = f"/playbooks/{PLAYBOOK}/render"
        await self.client.ask("render", key, "POST", path, json={"query_text": self._query()})

    async def read(self, _slug: str, key: str) -> None:
        path = self.tenants.randomly.choice(
            (
                f"/playbooks/{PLAYBOOK}",
                f"/playbooks/{PLAYBOOK}/bullets?limit=50",
                "/traces?limit=50",
                "/runs?limit=50",
                "/memories?limit=50",
            )
        )
        await self.client.ask("read", key, "GET", path)

    async def trace(self, slug: str, key: str) -> None:
        path = "/traces?reflect=always"
        answer = await self.client.ask("trace", key, "POST", path, json=self._trace())
        self.client.acknowledged[slug] += answer is not None and answer.is_success

    async def lines(self, slug: str, key: str) -> None:
        body = b"".join(json.dumps(self._trace()).encode() + b"\n" for _ in range(5))
        answer = await self.client.ask(
            *("lines", key, "POST", "/traces?reflect=auto"),
            content=body,
            headers={"Content-Type": "application/x-ndjson"},
        )
        if answer is not None and answer.is_success:
            self.client.acknowledged[slug] += answer.json()["stored"]

    async def reflect(self, slug: str, key: str) -> None:
        number = next(self.numbers)
        body = failures(number + 1)[number] | {"external_id": f"soak-{number}"}
        answer = await self.client.ask("reflect", key, "POST", "/reflections/generate", json=body)
        self.client.acknowledged[slug] += answer is not None and answer.is_success


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


async def send_large_bodies(load: Load) -> None:
    """A trace of 30 MB as JSON and the same as NDJSON."""
    count = 2_000
    text = "x " * (LARGE_BODY_BYTES // count // 2 - 40)
    events = [{"event_type": "tool_response", "content": f"{n} {text}"} for n in range(count)]
    slug, key = load.tenants.pick()
    for name in ("large-json", "large-lines"):
        trace = {"external_id": f"{name}-{next(load.numbers)}", "outcome": "success"}
        parts = [{"events": events}] if name == "large-json" else [
            {"events": events[n : n + 500], "external_id": f"{trace['external_id']}-{n}"}
            for n in range(0, count, 500)
        ]  # fmt: skip
        body = b"\n".join(json.dumps(trace | part).encode() for part in parts)
        kind = "application/json" if name == "large-json" else "application/x-ndjson"
        answer = await load.client.ask(
            *("large body", key, "POST", "/traces?reflect=always"),
            content=body,
            headers={"Content-Type": kind},
        )
        if answer is not None and answer.is_success:
            load.client.acknowledged[slug] += len(parts)


async def flood(client: Client, key: str) -> tuple[int, int, int]:
    """One tenant sends more than the queue takes. Returns how many traces were accepted and refused
    with `Retry-After`, and how many answers were neither.
    """
    accepted = refused = other = 0
    for n in range(QUEUE_LIMIT + 100):
        trace = failures(n + 1)[n] | {"external_id": f"flood-{n}"}
        answer = await client.ask("flood", key, "POST", "/traces?reflect=always", json=trace)
        if answer is not None and answer.is_success:
            accepted += 1
        elif answer is not None and answer.status_code == 429 and "Retry-After" in answer.headers:
            refused += 1
            client.statuses["flood", 429] -= 1  # the goal, and not an error
        else:
            other += 1
    return accepted, refused, other


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
    keys = await create_tenants(server, form.tenants + 1)
    flooder, flooder_key = keys.popitem()
    admin = await connect(server.url("postgres"))
    base = f"http://127.0.0.1:{port}/api/v1"
    limits = httpx2.Limits(max_connections=MAX_IN_FLIGHT + 4)
    async with httpx2.AsyncClient(base_url=base, timeout=60, limits=limits) as http:
        client = Client(http)
        for key in keys.values():
            body = {"content": "Before `refund`, check the role of the account."}
            await client.ask("prepare", key, "POST", f"/playbooks/{PLAYBOOK}/bullets", json=body)
        load = Load(client, Tenants(keys, random.Random(0)), form.rate, real_traces())
        sampler = Sampler(admin, {"API": api_process(), "worker": psutil.Process(pid)})
        sampling = asyncio.create_task(sampler.run())
        seconds = form.minutes * 60
        start = time.monotonic()
        warm = start + seconds * WARM_UP_SHARE
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run(start + seconds))
            await asyncio.sleep(seconds * WARM_UP_SHARE / 2)
            await send_large_bodies(load)
        drained = await _with(sampling, lambda: drain(admin))
        sampler_end = start + seconds - sampler.started
        report_memory(report, sampler, warm - sampler.started, sampler_end)
        worker_process = sampler.processes["worker"]
        worker_process.suspend()  # so that the queue fills
        accepted, refused, other = await flood(client, flooder_key)
        slug, key = next(iter(keys.items()))
        await load.trace(slug, key)
        await load.search(slug, key)
        worker_process.resume()
        client.acknowledged[flooder] += accepted
        await drain(admin)
        missing, dead = await lost(admin, client)
    await admin.close()
    report_requests(report, client)
    figures(report, client, sampler, load, drained)
    report.row(
        *("figures", f"a flood of {accepted + refused + other} traces of one tenant"),
        *(f"{accepted} accepted, {refused} refused by 429 with Retry-After, {other} others", ""),
    )
    report.row("figures", "acknowledged traces that are missing", missing, 0)
    report.row("figures", "runs that failed", dead, 0)


async def _with(sampling: asyncio.Task[None], action: Callable[[], Any]) -> Any:
    """The result of `action`; sampling ends with it."""
    try:
        return await action()
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling


def report_memory(report: Report, sampler: Sampler, warm: float, end: float) -> None:
    for name, samples in sampler.resident.items():
        at = [min(samples, key=lambda sample, t=t: abs(sample[0] - t))[1] for t in (warm, end)]
        report.row(
            *("memory", name, f"{samples[0][1]:.0f}", f"{at[0]:.0f}", f"{at[1]:.0f}"),
            *(f"{sampler.peak(name):.0f}", f"{sampler.growth(name, warm, end):+.1%}"),
        )


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
        f"{form.tenants} tenants, {form.rate:g} requests per second for {form.minutes:g} minutes, on "
        f"one API process and one worker with a stub model of 200 ms: {mix}. Real traces of about "
        "9 kB. After an eighth of the time, two bodies of 30 MB. The growth of memory is that of "
        f"the line of least squares over the last {1 - WARM_UP_SHARE:.0%} of the load. "
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f} at the start.",
    )
    report.table(
        *("memory", f"Resident MB; goals: growth ≤ 1 %, maximum ≤ {MAX_RESIDENT_MB} MB"),
        *("process", "start", "after warm-up", "end", "maximum", "growth"),
    )
    report.table("requests", "Requests", "kind", "count", "errors", "p50, ms", "p95, ms")
    report.table("figures", "Figures", "what", "figure", "goal")
    with measured_server() as server, slow_model(0.2) as url:
        settings = {
            "OPENAI_API_KEY": "stub",
            "OPENAI_BASE_URL": url,
            "HANSEI_LLM_PROVIDER": "openai",
            "HANSEI_LLM_MODEL": "stub",
            "HANSEI_POOL_SIZE": str(POOL_SIZE),
            "HANSEI_QUEUE_LIMIT": str(QUEUE_LIMIT),
        }
        with api(server, settings) as port, worker(server, settings) as pid:
            asyncio.run(soak(server, report, form, port, pid))
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
