"""Ingestion of traces as NDJSON over HTTP, and the memory of the API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import typer

from bench.data import lines, real_traces, small_traces
from bench.harness import (
    MeasuredServer,
    Report,
    api,
    api_process,
    describe_machine,
    measured_server,
    new_tenant,
    resident,
    send,
)


def forms(short: bool) -> Iterator[tuple[str, list[dict[str, Any]], int, int, str]]:
    """Name, traces, how many, connections, reflect."""
    real, small = real_traces(), small_traces()
    n = 500 if short else 3000
    yield "real traces, stored", real, n, 1, "never"
    yield "real traces, 2 connections", real, n, 2, "never"
    yield "real traces, each with its run queued", real, n, 1, "always"
    yield "small traces, stored", small, 2 * n, 1, "never"
    yield "small traces, each with its run queued", small, 2 * n, 1, "always"


def measure(server: MeasuredServer, report: Report, short: bool) -> None:
    with api(server) as port:
        warm = asyncio.run(new_tenant(server, "warm"))
        send(port, warm, lines(real_traces(), 200, "warm"), "always")
        for place, (name, traces, count, connections, reflect) in enumerate(forms(short)):
            key = asyncio.run(new_tenant(server, f"ingest-{place}"))
            bodies = [lines(traces, count // connections, f"c{n}") for n in range(connections)]
            since = time.perf_counter()
            with ThreadPoolExecutor(connections) as pool:
                list(pool.map(lambda body, key=key, r=reflect: send(port, key, body, r), bodies))
            seconds = time.perf_counter() - since
            report.row(
                *("ingest", name, f"{count:,}", f"{sum(map(len, bodies)) / 2**20:.0f}"),
                *(f"{count / seconds:,.0f}", f"{resident(api_process()):.0f}"),
            )


def main(short: Annotated[bool, typer.Option(help="500 traces, writes no file.")] = False) -> None:
    report = Report(
        "ingest", f"One API process, one client on the same machine. {describe_machine()}"
    )
    report.table(
        *("ingest", "NDJSON over HTTP", "what", "traces", "MB", "traces/s", "API resident MB")
    )
    with measured_server() as server:
        measure(server, report, short)
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
