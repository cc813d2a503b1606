"""Compares a database that Citus distributes by tenant with a single server."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer

from bench.background_work import failures
from bench.distribution import distribute
from bench.ingest import real_traces
from bench.mixed_load import create_tenants
from bench.report import Report
from bench.server import DATABASE, MeasuredServer, api, connect, measured_server, worker
from memory_api.core.migrations import upgrade
from memory_api.embedded.binaries import find_binaries
from memory_api.embedded.provisioning import provision_database
from memory_api.embedded.server import EmbeddedPostgres

PLAYBOOK = "desk"
NODES = ("127.251.0.1", "127.251.0.2", "127.251.0.3")
"""Addresses of the coordinator and two workers."""
CITUS = {
    "shared_preload_libraries": "citus",
    "session_preload_libraries": "vector",
    "wal_level": "logical",
    "max_prepared_transactions": "200",
    "shared_buffers": "256MB",
}
QUERIES = ("refund the order", "flight to Seattle", "no such job", "exit status 7", "注文の返品")
FUSIONS = ("anchored", "rrf", "minmax")
DIFFERENT = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)"
)
"""IDs and times, which differ between two servers with the same content."""


def missing_citus() -> str | None:
    """Why Citus cannot be started here; None if it can."""
    config = find_binaries(None) / "pg_config"
    folder = subprocess.run([config, "--sharedir"], capture_output=True, text=True, check=True)
    control = Path(folder.stdout.strip()) / "extension" / "citus.control"
    return None if control.exists() else "Citus is not installed for this PostgreSQL."


@contextmanager
def citus_cluster() -> Iterator[MeasuredServer]:
    """A coordinator and two workers with a migrated and distributed database."""
    with ExitStack() as stack:
        servers: list[EmbeddedPostgres] = []
        for host in NODES:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hansei-bench-"))
            conf = CITUS | {"listen_addresses": host}
            server = EmbeddedPostgres(Path(folder) / "pg", conf=conf).start()
            stack.callback(server.destroy)
            servers.append(server)
        asyncio.run(_prepare(servers))
        yield MeasuredServer(servers[0], NODES[0])


async def _prepare(servers: list[EmbeddedPostgres]) -> None:
    for server in servers:
        await provision_database(server, DATABASE)
        superuser = await connect(server.url("postgres", DATABASE))
        await superuser.execute("create extension if not exists citus")
        await superuser.close()
    coordinator = servers[0]
    await upgrade(coordinator.url("hansei_owner", DATABASE))
    superuser = await connect(coordinator.url("postgres", DATABASE))
    owner = await connect(coordinator.url("hansei_owner", DATABASE))
    await superuser.execute("select citus_set_coordinator_host($1, 5432)", NODES[0])
    await distribute(superuser, owner, DATABASE, [(host, 5432) for host in NODES[1:]])
    await owner.close()
    await superuser.close()


@dataclass
class Side:
    """One of the two services, with what each tenant sees of it."""

    server: MeasuredServer
    port: int
    keys: dict[str, str]
    seconds: Counter[str] = field(default_factory=Counter)
    """Total time of the requests, by kind."""

    def ask(self, slug: str, kind: str, method: str, path: str, **content: Any) -> Any:
        """The body of the response, without IDs and times."""
        since = time.perf_counter()
        headers = {"Authorization": f"Bearer {self.keys[slug]}"}
        url = f"http://127.0.0.1:{self.port}/api/v1{path}"
        answer = httpx2.request(method, url, headers=headers, timeout=120, **content)
        self.seconds[kind] += time.perf_counter() - since
        answer.raise_for_status()
        return json.loads(DIFFERENT.sub("", answer.text))

    def send(self, slug: str, trace: dict[str, Any]) -> None:
        self.ask(slug, "ingest", "POST", "/traces?reflect=always", json=trace)

    def drain(self) -> float:
        since = time.perf_counter()
        asyncio.run(self._drain())
        return time.perf_counter() - since

    async def _drain(self) -> None:
        admin = await connect(self.server.url("postgres"))
        waiting = "select count(*) from tickets"
        while await admin.fetchval(waiting):  # noqa: ASYNC110 - other processes work
            await asyncio.sleep(0.5)
        await admin.close()

    def observe(self, slug: str) -> dict[str, Any]:
        """Everything that a tenant can read and that must be the same on both sides."""
        seen: dict[str, Any] = {}
        for query in QUERIES:
            for fusion in FUSIONS:
                body = {"query_text": query, "fusion": fusion, "top_k": 20}
                found = self.ask(slug, "search", "POST", "/search", json=body)["results"]
                seen[f"search {fusion} {query}"] = sorted(map(_hit, found))
            path = f"/playbooks/{PLAYBOOK}/render"
            body = {"query_text": query}
            seen[f"render {query}"] = self.ask(slug, "render", "POST", path, json=body)["text"]
        for name in ("bullets", "versions", "effects", "lessons"):
            path = f"/playbooks/{PLAYBOOK}/{name}?limit=200"
            seen[name] = self.ask(slug, "read", "GET", path)["items"]
        memories = self.ask(slug, "read", "GET", "/memories?limit=200")["items"]
        seen["memories"] = sorted(json.dumps(memory, sort_keys=True) for memory in memories)
        runs = self.ask(slug, "read", "GET", "/runs?limit=200")["items"]
        seen["runs"] = Counter(f"{run['kind']} {run['state']}" for run in runs)
        seen["usage"] = self.ask(slug, "read", "GET", "/usage?group_by=purpose")
        return seen


def _hit(hit: dict[str, Any]) -> tuple[float, str]:
    return round(hit["combined_score"], 4), hit["memory"]["content"]


def traces_of(number: int, each: int) -> list[dict[str, Any]]:
    """Traces of the tenant with this number: real ones and generated failures."""
    real = real_traces()
    made = failures(number * each + each)[number * each :]
    both = [real[(number * each + n) % len(real)] if n % 2 else made[n] for n in range(each)]
    return [
        trace | {"external_id": f"{number}-{n}", "playbook": PLAYBOOK}
        for n, trace in enumerate(both)
    ]


def compare(report: Report, sides: dict[str, Side], tenants: int, each: int) -> None:
    slugs = [f"soak-{n}" for n in range(tenants)]
    sent = [traces_of(n, each) for n in range(tenants)]
    for name, side in sides.items():
        seconds = 0.0
        for place in range(
            each
        ):  # one trace of a tenant at a time, so that both learn in one order
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(side.send, slugs, [traces[place] for traces in sent]))
            seconds += side.drain()
        report.row("figures", f"{name}: seconds of waiting for the queue", f"{seconds:.0f}", "")
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
    for kind in ("ingest", "search", "render", "read"):
        times = ", ".join(f"{name} {side.seconds[kind]:.1f} s" for name, side in sides.items())
        report.row("figures", f"{kind}: total time of requests", times, "")


def main(
    tenants: Annotated[int, typer.Option(help="Number of tenants.")] = 500,
    each: Annotated[int, typer.Option(help="Traces of each tenant.")] = 4,
    short: Annotated[bool, typer.Option(help="20 tenants, writes no file.")] = False,
    plain: Annotated[
        bool,
        typer.Option(help="Compare two single servers, to test the comparison without Citus."),
    ] = False,
) -> None:
    reason = None if plain else missing_citus()
    if reason is not None:
        typer.echo(f"citus: skipped. {reason}")
        return
    tenants = 20 if short else tenants
    report = Report(
        "citus",
        f"{tenants} tenants with {each} traces each, learned from by rules. Every answer of one "
        "service is compared with that of the other, without IDs and times. "
        f"{platform.machine()}, {os.cpu_count()} cores, all servers on this machine.",
    )
    report.table("figures", "Comparison", "what", "figure", "goal")
    with ExitStack() as stack:
        other = stack.enter_context(measured_server() if plain else citus_cluster())
        single = stack.enter_context(measured_server())
        sides: dict[str, Side] = {}
        for name, server in (("distributed" if not plain else "other", other), ("single", single)):
            port = stack.enter_context(api(server))
            stack.enter_context(worker(server, {}))
            sides[name] = Side(server, port, asyncio.run(create_tenants(server, tenants)))
        compare(report, sides, tenants, each)
    report.finish(write=not short and not plain)


if __name__ == "__main__":
    typer.run(main)
