"""A flood of OpenTelemetry spans: back-pressure, and that nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import platform
import threading
import time
from dataclasses import dataclass, field
from queue import Queue
from typing import Annotated

import typer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.ingest import new_tenant
from bench.report import Report
from bench.server import api, connect, measured_server

SPANS_PER_REQUEST = 500
SPANS_PER_TRACE = 10
SENDERS = 8
"""Exporters that send at once."""


def encode_request(number: int) -> bytes:
    """500 spans of 50 agent runs: a root, model calls with messages, and tool calls."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for run in range(SPANS_PER_REQUEST // SPANS_PER_TRACE):
        trace_id = (number * 1_000 + run + 1).to_bytes(16, "big")
        for position in range(SPANS_PER_TRACE):
            span = spans.add(
                trace_id=trace_id, span_id=(position + 1).to_bytes(8, "big"), name="span",
                start_time_unix_nano=10**18 + position, end_time_unix_nano=10**18 + position + 1,
            )  # fmt: skip
            if position:
                span.parent_span_id = (1).to_bytes(8, "big")
            for name, value in _attributes(position).items():
                span.attributes.add(key=name).value.string_value = value
    return request.SerializeToString()


def _attributes(position: int) -> dict[str, str]:
    if position == 0:
        return {"gen_ai.operation.name": "invoke_agent"}
    if position % 2:
        messages = [{"role": "user", "parts": [{"type": "text", "content": f"Order W{position}?"}]}]
        answer = [
            {"role": "assistant", "parts": [{"type": "text", "content": f"{position} " * 40}]}
        ]
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.output.messages": json.dumps(answer),
        }
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_order",
        "gen_ai.tool.call.id": f"c{position}",
        "gen_ai.tool.call.arguments": '{"id": "W1"}',
        "gen_ai.tool.call.result": "delivered " * 20,
    }


EVENTS_PER_TRACE = 2 * (SPANS_PER_TRACE - 1)
"""Two of each span but the root: message and answer, or call and result."""


@dataclass
class Counts:
    acknowledged: int = 0
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    milliseconds: list[float] = field(default_factory=list[float])


def send_all(port: int, key: str, queue: Queue[bytes | None], counts: Counts) -> None:
    """Sends as an exporter does: after 429, the same request again when Retry-After has passed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-protobuf"}
    while (body := queue.get()) is not None:
        while True:
            since = time.perf_counter()
            connection.request("POST", "/v1/traces", body, headers)
            response = connection.getresponse()
            response.read()
            with counts.lock:
                if response.status == 200:
                    counts.acknowledged += SPANS_PER_REQUEST
                    counts.milliseconds.append((time.perf_counter() - since) * 1e3)
                    break
                counts.refused += 1
            assert response.status == 429, response.status
            time.sleep(float(response.headers["retry-after"]))


def flood(port: int, key: str, rate: int, seconds: int) -> tuple[Counts, float]:
    """Offers `rate` spans per second. Returns the counts and the seconds until all were stored."""
    counts, queue = Counts(), Queue[bytes | None]()
    threads = [
        threading.Thread(target=send_all, args=(port, key, queue, counts)) for _ in range(SENDERS)
    ]
    bodies = [encode_request(number) for number in range(rate * seconds // SPANS_PER_REQUEST)]
    since = time.perf_counter()
    for thread in threads:
        thread.start()
    for number, body in enumerate(bodies):
        time.sleep(max(0.0, since + number * SPANS_PER_REQUEST / rate - time.perf_counter()))
        queue.put(body)
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()
    return counts, time.perf_counter() - since


async def stored_events(url: str) -> int:
    connection = await connect(url)
    try:
        return await connection.fetchval("select count(*) from trace_events")
    finally:
        await connection.close()


def main(rate: Annotated[int, typer.Option()] = 5_000, seconds: int = 30) -> None:
    with measured_server() as server, api(server) as port:
        key = asyncio.run(new_tenant(server, "flood"))
        counts, elapsed = flood(port, key, rate, seconds)
        events = asyncio.run(stored_events(server.url("postgres")))
    expected = counts.acknowledged // SPANS_PER_TRACE * EVENTS_PER_TRACE
    report = Report(
        "otlp",
        f"{rate:,} spans per second offered for {seconds} s by {SENDERS} exporters, in requests of "
        f"{SPANS_PER_REQUEST} spans of {SPANS_PER_REQUEST // SPANS_PER_TRACE} agent runs. One API "
        f"process; clients and PostgreSQL on the same machine. {platform.machine()}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f} at the end. A request that was refused is sent again.",
    )
    columns = ("acknowledged", "events stored", "events expected", "429", "spans/s", "median, ms")
    report.table("flood", "Spans", *columns)
    times = sorted(counts.milliseconds)
    report.row(
        "flood",
        *(f"{counts.acknowledged:,}", f"{events:,}", f"{expected:,}", f"{counts.refused:,}"),
        *(f"{counts.acknowledged / elapsed:,.0f}", f"{times[len(times) // 2]:.0f}"),
    )
    report.finish()
    assert events == expected


if __name__ == "__main__":
    typer.run(main)
