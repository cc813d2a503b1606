"""Ingestion of traces as NDJSON over HTTP, compared with a COPY of the same rows without
policies.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import itertools
import json
import os
import platform
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import psutil
import typer

from bench.corpus import ROOT, SHARED
from bench.real_traces import to_trace
from bench.report import Report
from bench.server import MeasuredServer, api, connect, measured_server
from memory_api.auth.identity import KeyScope
from memory_api.auth.queries import create_key, create_tenant
from memory_api.core.db import Sessions, open_engine
from memory_api.core.ids import to_tenant_id

TABLES = ("traces", "trace_events", "runs", "tickets")


def real_traces() -> list[dict[str, Any]]:
    """551 real traces of about 9 kB and 20 events, or the example traces if they do not exist."""
    file = SHARED / "traces.jsonl"
    file = file if file.exists() else ROOT / "examples" / "traces.jsonl"
    return [to_trace(json.loads(line)) for line in file.read_text(encoding="utf8").splitlines()]


def small_traces() -> list[dict[str, Any]]:
    """Traces with five short events."""
    events = [{"event_type": "tool_call", "tool_name": "shell", "content": "ls -l"}] * 4
    last = {"event_type": "error_event", "content": "No such file or directory: plan.txt"}
    return [{"outcome": "failure", "task_description": "Read it", "events": [*events, last]}]


def lines(traces: list[dict[str, Any]], count: int, name: str) -> bytes:
    """`count` of them as NDJSON, each with an external_id of its own."""
    named = (
        {key: value for key, value in trace.items() if key != "id"} | {"external_id": f"{name}-{n}"}
        for n, trace in zip(range(count), itertools.cycle(traces), strict=False)
    )
    return b"".join(json.dumps(trace).encode() + b"\n" for trace in named)


def send(port: int, key: str, body: bytes, reflect: str) -> dict[str, Any]:
    """One request, as the SDK or curl would send a file."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(
        "POST",
        f"/api/v1/traces?reflect={reflect}",
        body,
        {"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"},
    )
    response = connection.getresponse()
    result = json.loads(response.read())
    connection.close()
    if response.status != 200 or result.get("rejected"):
        raise RuntimeError(f"{response.status}: {str(result)[:300]}")
    return result


async def new_tenant(server: MeasuredServer, slug: str) -> str:
    """Create a tenant and return an API key."""
    sessions = Sessions(open_engine(server.url("hansei_owner"), pool_size=1))
    async with sessions.for_tenant(to_tenant_id(slug)) as session:
        await create_tenant(session, slug)
        _, key = await create_key(session, scopes=[KeyScope.ADMIN], name="bench")
    await sessions.close()
    return key.text


async def rows_of(server: MeasuredServer, slug: str) -> dict[str, int]:
    """What a tenant has in each table."""
    admin = await connect(server.url("postgres"))
    found = {}
    for table in TABLES:
        column = "lane" if table == "tickets" else "tenant_id"
        found[table] = await admin.fetchval(
            f"select count(*) from {table} where {column} = $1", to_tenant_id(slug)
        )
    await admin.close()
    return found


async def copy_again(server: MeasuredServer, slug: str, times: int = 3) -> float:
    """Seconds (best of `times`) that COPY takes for a tenant's rows, into tables with the same
    columns and indexes and without policies.
    """
    admin = await connect(server.url("postgres"))
    data: dict[str, bytes] = {}
    for table in TABLES:
        column = "lane" if table == "tickets" else "tenant_id"
        generated = await admin.fetch(
            "select attname from pg_attribute where attrelid = $1::regclass and attnum > 0"
            " and not attisdropped and attgenerated = '' order by attnum",
            table,
        )
        names = ", ".join(f'"{row["attname"]}"' for row in generated)
        held = io.BytesIO()
        await admin.copy_from_query(
            f"select {names} from {table} where {column} = $1",
            to_tenant_id(slug),
            output=held,
            format="binary",
        )
        data[table] = held.getvalue()
        data[f"{table} columns"] = names.encode()
    taken = []
    for _ in range(times):
        for table in TABLES:
            await admin.execute(f"drop table if exists plain_{table}")
            await admin.execute(f"create table plain_{table} (like {table} including all)")
        since = time.perf_counter()
        async with admin.transaction():
            for table in TABLES:
                names = data[f"{table} columns"].decode()
                await admin.copy_to_table(
                    f"plain_{table}",
                    source=io.BytesIO(data[table]),
                    columns=[name.strip('"') for name in names.split(", ")],
                    format="binary",
                )
        taken.append(time.perf_counter() - since)
    await admin.close()
    return min(taken)


def api_process() -> psutil.Process:
    mine = psutil.Process().children()
    return next(one for one in mine if "serve" in one.cmdline())


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
            slug = f"ingest-{place}"
            key = asyncio.run(new_tenant(server, slug))
            bodies = [lines(traces, count // connections, f"c{n}") for n in range(connections)]
            since = time.perf_counter()
            with ThreadPoolExecutor(connections) as pool:
                list(pool.map(lambda body, key=key, r=reflect: send(port, key, body, r), bodies))
            seconds = time.perf_counter() - since
            rows = sum(asyncio.run(rows_of(server, slug)).values())
            copied = asyncio.run(copy_again(server, slug))
            report.row(
                "ingest",
                name,
                f"{count:,}",
                f"{rows:,}",
                f"{sum(map(len, bodies)) / 2**20:.0f}",
                f"{count / seconds:,.0f}",
                f"{rows / seconds:,.0f}",
                f"{rows / copied:,.0f}",
                f"1/{seconds / copied:.1f}",
                f"{api_process().memory_info().rss / 2**20:.0f}",
            )


def main(short: Annotated[bool, typer.Option(help="500 traces, writes no file.")] = False) -> None:
    report = Report(
        "ingest",
        f"One API process, one client on the same machine. {platform.machine()}, {os.cpu_count()} "
        f"cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the start. "
        "COPY is binary, as the superuser, one transaction, into tables with the same columns and "
        "indexes, without policies and foreign keys; best of three. Goal: 1/10 of it.",
    )
    report.table(
        *("ingest", "NDJSON over HTTP and COPY", "what", "traces", "rows", "MB", "traces/s"),
        *("rows/s", "COPY rows/s", "share", "API resident MB"),
    )
    with measured_server() as server:
        measure(server, report, short)
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
