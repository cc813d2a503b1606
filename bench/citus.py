"""Compares a database that Citus distributes by tenant with a single server."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

import httpx2
import typer

from bench.commits import Service, compare_learning, compare_reads, compare_writes
from bench.data import failure, lines, real_traces
from bench.harness import (
    DATABASE,
    Caller,
    MeasuredServer,
    Report,
    api,
    connect,
    describe_machine,
    measured_server,
    new_tenant,
    spread_alternating,
    worker,
)
from bench.mixed_load import create_tenants
from tests.support.citus import Cluster, open_cluster

PLAYBOOK = "desk"
QUERIES = ("refund the order", "flight to Seattle", "no such job", "exit status 7", "注文の返品")
RUN_TIMES = """
select percentile_cont(array[0.5, 0.95]) within group (
    order by 1000 * extract(epoch from finished_at - started_at)::float)
from runs where kind = 'reflect' and state = 'done'
"""
FUSIONS = ("anchored", "rrf", "minmax")
DIFFERENT = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)"
)
"""IDs and times, which differ between two servers with the same content."""


class Coordinator(MeasuredServer):
    """A new database of a running cluster, migrated and distributed."""

    def __init__(self, url: str) -> None:
        self._cluster = asyncio.run(self._prepare(url))

    @staticmethod
    async def _prepare(url: str) -> Cluster:
        cluster = await open_cluster(url)
        await cluster.make_template()
        await cluster.clone(DATABASE)
        return cluster

    def url(self, role: str) -> str:
        return self._cluster.url(role, DATABASE)


@dataclass
class Side:
    """One of the two services, with what each tenant sees of it."""

    server: MeasuredServer
    port: int
    keys: dict[str, str]

    def ask(self, slug: str, method: str, path: str, **content: Any) -> Any:
        """The body of the response, without IDs and times."""
        headers = {"Authorization": f"Bearer {self.keys[slug]}"}
        url = f"http://127.0.0.1:{self.port}/api/v1{path}"
        answer = httpx2.request(method, url, headers=headers, timeout=120, **content)
        answer.raise_for_status()
        return json.loads(DIFFERENT.sub("", answer.text))

    def send(self, slug: str, trace: dict[str, Any]) -> None:
        self.ask(slug, "POST", "/traces?reflect=always", json=trace)

    async def drain(self) -> None:
        admin = await connect(self.server.url("postgres"))
        waiting = "select count(*) from tickets"
        while await admin.fetchval(waiting):  # noqa: ASYNC110 - other processes work
            await asyncio.sleep(0.5)
        await admin.close()

    async def time_runs(self) -> str:
        admin = await connect(self.server.url("postgres"))
        half, most = await admin.fetchval(RUN_TIMES)
        await admin.close()
        return f"{half:.2f} / {most:.2f}"

    def observe(self, slug: str) -> dict[str, Any]:
        """Everything that a tenant can read and that must be the same on both sides."""
        seen: dict[str, Any] = {}
        for query in QUERIES:
            for fusion in FUSIONS:
                body = {"query_text": query, "fusion": fusion, "top_k": 20}
                found = self.ask(slug, "POST", "/search", json=body)["results"]
                seen[f"search {fusion} {query}"] = sorted(map(_hit, found))
            path = f"/playbooks/{PLAYBOOK}/render"
            body = {"query_text": query}
            seen[f"render {query}"] = self.ask(slug, "POST", path, json=body)["text"]
        for name in ("bullets", "versions", "effects", "lessons"):
            path = f"/playbooks/{PLAYBOOK}/{name}?limit=200"
            seen[name] = self.ask(slug, "GET", path)["items"]
        memories = self.ask(slug, "GET", "/memories?limit=200")["items"]
        seen["memories"] = sorted(json.dumps(memory, sort_keys=True) for memory in memories)
        runs = self.ask(slug, "GET", "/runs?limit=200")["items"]
        seen["runs"] = Counter(f"{run['kind']} {run['state']}" for run in runs)
        seen["usage"] = self.ask(slug, "GET", "/usage?group_by=purpose")
        return seen


def _hit(hit: dict[str, Any]) -> tuple[float, str]:
    return round(hit["combined_score"], 4), hit["memory"]["content"]


def traces_of(number: int, each: int) -> list[dict[str, Any]]:
    """Traces of the tenant with this number: real ones and generated failures."""
    real = real_traces()
    made = [failure(number * each + n) for n in range(each)]
    both = [real[(number * each + n) % len(real)] if n % 2 else made[n] for n in range(each)]
    return [
        trace | {"external_id": f"{number}-{n}", "playbook": PLAYBOOK}
        for n, trace in enumerate(both)
    ]


def compare(report: Report, sides: dict[str, Side], tenants: int, each: int) -> None:
    slugs = [f"soak-{n}" for n in range(tenants)]
    sent = [traces_of(n, each) for n in range(tenants)]
    for side in sides.values():
        for place in range(each):  # one trace of a tenant at a time: both learn in one order
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(side.send, slugs, [traces[place] for traces in sent]))
            asyncio.run(side.drain())
    different: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    for slug in slugs:
        first, second = (side.observe(slug) for side in sides.values())
        for what in first:
            kind = what.split()[0]
            compared[kind] += 1
            different[kind] += first[what] != second[what]
    for kind, count in compared.items():
        report.row("figures", f"{kind}: answers that differ, of {count:,}", different[kind], "0")


def compare_speed(report: Report, sides: dict[str, Side], short: bool) -> None:
    one, other = (
        Service(name, side.port, asyncio.run(new_tenant(side.server, "speed")))
        for name, side in sides.items()
    )
    sizes, questions, rounds = ((200,), 50, 2) if short else ((200, 1_000), 150, 5)
    asyncio.run(compare_reads(one, other, report, sizes, questions))
    compare_writes(one, other, report, rounds, 200)
    compare_learning(one, other, report, rounds, 48)
    report.table("each", "Writes, p50 / p95 in ms", "what", one.name, other.name)
    asyncio.run(time_ingestion(report, one, other))
    runs = [asyncio.run(side.time_runs()) for side in sides.values()]
    report.row("each", "a run that learns by rules", *runs)


async def time_ingestion(report: Report, *services: Service) -> None:
    bodies = lines(real_traces(), 200, "one").splitlines()
    path = "/api/v1/traces?reflect=never"
    clients = [Caller(one.port, one.key) for one in services]
    calls = [lambda n, c=client: c.ask("POST", path, bodies[n]) for client in clients]
    report.row("each", "one trace", *await spread_alternating(*calls, len(bodies)))
    for client in clients:
        await client.close()


def main(
    tenants: Annotated[int, typer.Option(help="Number of tenants.")] = 500,
    each: Annotated[int, typer.Option(help="Traces of each tenant.")] = 4,
    short: Annotated[bool, typer.Option(help="20 tenants, writes no file.")] = False,
    coordinator: Annotated[
        str,
        typer.Option(
            envvar="HANSEI_TEST_PG",
            help="URL of a superuser of a Citus coordinator, in a database with its nodes.",
        ),
    ] = "",
) -> None:
    if not coordinator.startswith("postgresql:"):
        typer.echo("citus: skipped. Set HANSEI_TEST_PG to the URL of a Citus coordinator.")
        return
    tenants = 20 if short else tenants
    report = Report(
        "citus",
        f"{tenants} tenants with {each} traces each, learned from by rules. Every answer of one "
        "service is compared with that of the other, without IDs and times. Then another tenant "
        "measures the speed of both in turn, with an API process and a worker each. "
        f"{describe_machine()} All servers are on this machine.",
    )
    report.table("figures", "Comparison", "what", "figure", "goal")
    with ExitStack() as stack:
        single = stack.enter_context(measured_server())
        sides: dict[str, Side] = {}
        for name, server in (("one server", single), ("cluster", Coordinator(coordinator))):
            port = stack.enter_context(api(server))
            stack.enter_context(worker(server, {}))
            sides[name] = Side(server, port, asyncio.run(create_tenants(server, tenants)))
        compare(report, sides, tenants, each)
        compare_speed(report, sides, short)
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
