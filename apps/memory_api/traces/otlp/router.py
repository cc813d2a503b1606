"""`POST /v1/traces`: spans of OpenTelemetry exporters, by OTLP over HTTP (docs/integrations)."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from memory_api.api.bodies import (
    MAX_LARGE_BODY,
    UnsupportedMediaType,
    media_type,
    read_body,
)
from memory_api.api.deps import RuntimeDep, Writer
from memory_api.api.route import LargeBodyRoute
from memory_api.core.errors import TooManyRequests
from memory_api.core.schemas import PlaybookName
from memory_api.traces.intake import TraceIntake
from memory_api.traces.otlp.decoding import JSON, PROTOBUF, decode_request, decompress
from memory_api.traces.otlp.genai import GroupedSpans, group_spans
from memory_api.traces.otlp.span_storage import SpanOptions, prepare_drafts, store_spans
from memory_api.traces.schemas import ReflectMode

router = APIRouter(prefix="/v1/traces", tags=["traces"], route_class=LargeBodyRoute)

MAX_CONCURRENT_REQUESTS = 4
"""Export requests that one process handles at once. Others get 429; exporters send them again."""
RETRY_AFTER_SECONDS = 1


class ExportSlots:
    """Counts the requests that this process handles. Used in one event loop."""

    def __init__(self) -> None:
        self._active = 0

    @contextmanager
    def take(self) -> Generator[None]:
        if self._active >= MAX_CONCURRENT_REQUESTS:
            raise TooManyRequests(
                "Too many export requests at once. The exporter sends these spans again.",
                retry_after=RETRY_AFTER_SECONDS,
            )
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1


SLOTS = ExportSlots()


@router.post("", include_in_schema=False)  # OTLP has its own specification
async def export_spans(
    request: Request,
    runtime: RuntimeDep,
    caller: Writer,
    reflect: ReflectMode = "auto",
    playbook: Annotated[PlaybookName | None, Query()] = None,
    project_id: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Stores the spans of generative AI as events of traces. Others are ignored and counted in
    `partial_success`.
    """
    kind = media_type(request.headers.get("content-type", ""))
    if kind not in (PROTOBUF, JSON):
        raise UnsupportedMediaType(f"Send OTLP as `{PROTOBUF}` or `{JSON}`.")
    with SLOTS.take():
        body = await read_body(request, MAX_LARGE_BODY)
        encoding = request.headers.get("content-encoding", "").strip().lower()
        grouped = await asyncio.to_thread(_read_spans, body.raw, encoding, kind)
        full = 0
        if grouped.groups or grouped.ended_roots:
            intake = TraceIntake(runtime, caller, reflect)
            options = SpanOptions(project_id, playbook)
            drafts = await prepare_drafts(caller, grouped.groups, options)
            async with runtime.sessions.for_tenant(caller.tenant_id) as session:
                full = await store_spans(intake, session, drafts, grouped.ended_roots)
    return _respond(grouped.ignored, full, kind)


def _read_spans(raw: bytes, encoding: str, kind: str) -> GroupedSpans:
    grouped = group_spans(decode_request(decompress(raw, encoding), kind))
    for group in grouped.groups:
        _ = group.events  # computed here, in a thread, not in the transaction
    return grouped


def _respond(ignored: int, full: int, kind: str) -> Response:
    answer = ExportTraceServiceResponse()
    reasons: list[str] = []
    if ignored:
        reasons.append(f"{ignored} spans have no attributes of generative AI and were ignored.")
    if full:
        reasons.append(f"{full} events exceed the limit of their trace.")
    if reasons:
        answer.partial_success.rejected_spans = ignored + full
        answer.partial_success.error_message = " ".join(reasons)
    content = MessageToJson(answer) if kind == JSON else answer.SerializeToString()
    return Response(content, media_type=kind)
