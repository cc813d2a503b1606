"""Two commits side by side, as users run them: search, render, ingestion, and learning by rules.

Each commit runs `hansei up` from its own checkout, with a database and a worker of its own and the
settings that a new user has. Both get the same requests in turn, so that the load of the machine is
the same for both. Only HTTP requests that both commits understand are used.

    git worktree add ../old COMMIT
    python -m bench commits --old ../old
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.data import lines, queries, real_traces, small_traces, texts
from bench.harness import (
    ROOT,
    Call,
    Caller,
    Report,
    describe_machine,
    rate,
    send,
    spread_alternating,
)
from bench.search import CLIENTS
from memory_api.embedded.ports import find_free_port
from memory_api.embedded.server import EmbeddedPostgres

ROUTES = ("search", "render")
PLAYBOOKS = 4
"""Playbooks that share the traces of a learning round."""
SETTLE_SECONDS = 120.0
"""How long a round of learning may take."""


@dataclass(frozen=True)
class Service:
    """A running service: `hansei up` of one commit, or one of the two of `bench citus`."""

    name: str
    port: int
    key: str


@contextmanager
def service(checkout: Path) -> Generator[Service]:
    """Start a checkout with an empty database, and delete the database afterwards."""
    commit = subprocess.check_output(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], text=True
    ).strip()
    port = find_free_port("127.0.0.1")
    old_package = (checkout / "apps" / "__init__.py").exists()
    module = "apps.memory_api" if old_package else "memory_api"
    command = [sys.executable, "-m", module, "up", "--json", "--port", str(port)]
    paths = os.pathsep.join([str(checkout), str(checkout / "apps"), str(checkout / "sdk")])
    with tempfile.TemporaryDirectory(prefix="hansei-bench-") as folder:
        data = Path(folder) / "data"
        with subprocess.Popen(
            [*command, "--data-dir", str(data)],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": paths, "HANSEI_LOG_LEVEL": "error"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            try:
                yield Service(commit, port, ready["api_key"])
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(60)
        EmbeddedPostgres(data).destroy()


def main(
    old: Annotated[Path, typer.Option(help="Checkout of the older commit.")],
    short: Annotated[bool, typer.Option(help="Less of everything, writes no file.")] = False,
) -> None:
    """Compare the commit of this folder with an older one."""
    sizes, questions, rounds = ((200, 1_000), 50, 2) if short else ((200, 1_000, 8_000), 300, 5)
    with ExitStack() as stack:
        before = stack.enter_context(service(old.resolve()))
        after = stack.enter_context(service(ROOT))
        report = Report(
            "commits",
            f"{before.name} (old) and {after.name} (new), each as `hansei up` runs it, "
            f"in turn. {describe_machine()}",
        )
        asyncio.run(compare_reads(before, after, report, sizes, questions))
        compare_writes(before, after, report, rounds, 300 if short else 1_000)
        compare_learning(before, after, report, rounds, 48)
    report.finish(write=not short)


async def compare_reads(
    old: Service, new: Service, report: Report, sizes: tuple[int, ...], questions: int
) -> None:
    """Search and render by one client, and by eight."""
    report.table(
        "reads",
        "Search and render: p50 / p95 of one client in ms; requests/s of eight clients",
        *("bullets", "request", old.name, new.name, "ratio of p50"),
        *(f"{old.name}, 8", f"{new.name}, 8"),
    )
    for size in sizes:
        name = f"bullets{size}"
        bullets = [
            {"id": f"oth-{n:05}", "section": "others", "content": text}
            for n, text in enumerate(texts(size), 1)
        ]
        body = json.dumps({"bullets": bullets}).encode()
        for one in (old, new):
            client = Caller(one.port, one.key)
            await client.ask("PUT", f"/api/v1/playbooks/{name}", body)
            await client.close()
        for route in ROUTES:
            path = f"/api/v1/playbooks/{name}/{route}"
            clients = [[Caller(one.port, one.key) for _ in range(CLIENTS)] for one in (old, new)]
            calls = [[asker(client, path) for client in group] for group in clients]
            await spread_alternating(calls[0][0], calls[1][0], questions // 3)  # plans, caches
            first, second = await spread_alternating(calls[0][0], calls[1][0], questions)
            rates = [
                [(await rate(group, 2.0))[0] for group in calls]
                for _ in range(4)  # the first fills the caches of each process
            ][1:]
            each = [f"{statistics.median(of):.0f}" for of in zip(*rates, strict=True)]
            ratio = f"{second.p50 / first.p50:.2f}"
            report.row("reads", f"{size:,}", route, first, second, ratio, *each)
            for client in itertools.chain(*clients):
                await client.close()


def asker(client: Caller, path: str) -> Call:
    asked = [json.dumps({"query_text": text}).encode() for text in queries()]
    return lambda n: client.ask("POST", path, asked[n % len(asked)])


def compare_writes(old: Service, new: Service, report: Report, rounds: int, count: int) -> None:
    """Traces as NDJSON, stored without being learned from."""
    columns = ("traces", old.name, new.name, "ratio")
    report.table("writes", "Ingestion, traces/s (median)", *columns)
    for name, traces, number in (
        ("real", real_traces(), count),
        ("small", small_traces(), 6 * count),
    ):
        bodies = [lines(traces, number, f"{name}-{n}") for n in range(rounds + 1)]

        def store(one: Service, n: int, bodies: list[bytes] = bodies) -> float:
            since = time.perf_counter()
            send(one.port, one.key, bodies[n], "never")
            return time.perf_counter() - since

        both = [(store(old, n), store(new, n)) for n in range(rounds + 1)][1:]
        add_rates(report, "writes", name, both, number)


def compare_learning(old: Service, new: Service, report: Report, rounds: int, count: int) -> None:
    """The whole chain by rules, until no run is left."""
    report.table(
        "learning",
        f"Learning by rules, {count} traces in {PLAYBOOKS} playbooks, traces/s (median)",
        *("traces", old.name, new.name, "ratio"),
    )

    told = [trace for trace in real_traces() if trace.get("outcome")]
    bodies = [
        lines(
            [
                trace | {"playbook": f"round{n}-{place % PLAYBOOKS}"}
                for place, trace in enumerate(told)
            ],
            count,
            f"learning-{n}",
        )
        for n in range(rounds + 1)
    ]

    def learn(one: Service, n: int) -> float:
        since = time.perf_counter()
        send(one.port, one.key, bodies[n], "always")
        asyncio.run(until_idle(one))
        return time.perf_counter() - since

    both = [(learn(old, n), learn(new, n)) for n in range(rounds + 1)][1:]
    add_rates(report, "learning", "real", both, count)


async def until_idle(one: Service) -> None:
    """Wait until no run is queued or running. Raises TimeoutError after `SETTLE_SECONDS`."""
    client = Caller(one.port, one.key)
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            answers = [
                await client.ask("GET", f"/api/v1/runs?state={state}&limit=1")
                for state in ("queued", "running")
            ]
            if not any(json.loads(answer)["items"] for answer in answers):
                break
            await asyncio.sleep(0.05)
    await client.close()


def add_rates(
    report: Report, table: str, name: str, seconds: list[tuple[float, float]], count: int
) -> None:
    """Add a row with the median rates of both, from the seconds of each round."""
    old, new = (count / statistics.median(column) for column in zip(*seconds, strict=True))
    report.row(table, name, f"{old:,.0f}", f"{new:,.0f}", f"{new / old:.2f}")


if __name__ == "__main__":
    typer.run(main)
