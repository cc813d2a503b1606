"""The tracing backend: OpenTelemetry's SDK with its OTLP/HTTP exporter (extra `otel`).

The provider is not registered as OpenTelemetry's global one, which belongs to the program. The SDK
reads the sampler, headers and batch sizes from its own variables (OTEL_TRACES_SAMPLER, …).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import requests
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from memory_api.core.errors import HanseiError
from memory_api.core.outgoing import OutgoingCall, send_call
from memory_api.core.tracing import ActiveSpan, Attributes, AttributeValue, SpanIds, SpanKind

NANOSECONDS = 1_000_000_000
FLUSH_SECONDS = 3.0
"""How long a process that ends waits for the export of its last spans."""
TRACEPARENT = "traceparent"

_KINDS = {
    "internal": trace.SpanKind.INTERNAL,
    "server": trace.SpanKind.SERVER,
    "client": trace.SpanKind.CLIENT,
    "producer": trace.SpanKind.PRODUCER,
    "consumer": trace.SpanKind.CONSUMER,
}
_PROPAGATOR = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class RecordingSpan:
    """An OpenTelemetry span as an `ActiveSpan`."""

    otel: trace.Span

    def set(self, name: str, value: AttributeValue) -> None:
        self.otel.set_attribute(name, value)

    def rename(self, name: str) -> None:
        self.otel.update_name(name)

    def fail(self, error_type: str) -> None:
        self.otel.set_attribute("error.type", error_type)
        self.otel.set_status(trace.StatusCode.ERROR)


class OpenTelemetryBackend:
    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("hansei")

    @contextmanager
    def span(
        self, name: str, kind: SpanKind, parent: str | None, attributes: Attributes
    ) -> Generator[ActiveSpan]:
        context = _PROPAGATOR.extract({TRACEPARENT: parent}) if parent else None
        otel = self._tracer.start_span(name, context, _KINDS[kind], attributes)
        token = otel_context.attach(trace.set_span_in_context(otel, context))
        recording = RecordingSpan(otel)
        try:
            yield recording
        except BaseException as error:
            recording.fail(type(error).__name__)
            raise
        finally:
            otel_context.detach(token)
            otel.end()

    def record_finished(
        self, name: str, kind: SpanKind, seconds: float, attributes: Attributes, error: str | None
    ) -> None:
        if not trace.get_current_span().get_span_context().is_valid:
            return
        ended_at = time.time_ns()
        otel = self._tracer.start_span(
            name,
            kind=_KINDS[kind],
            attributes=attributes,
            start_time=ended_at - int(seconds * NANOSECONDS),
        )
        if error is not None:
            RecordingSpan(otel).fail(error)
        otel.end(ended_at)

    def current_ids(self) -> SpanIds | None:
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return SpanIds(
            trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)
        )

    def traceparent(self) -> str | None:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get(TRACEPARENT)

    def shut_down(self) -> None:
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(FLUSH_SECONDS)


class _ExportSession(requests.Session):
    """Sends as all other outgoing calls: with a deadline for the whole call, without a redirect or
    a proxy, and no body of an answer is read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.headers.clear()

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        call = OutgoingCall(
            request.method or "POST",
            request.url or "",
            allow_private=True,
            seconds=options["timeout"],
            headers=cast("dict[str, str]", dict(request.headers)),
            content=cast("bytes", request.body or b""),
            tls=self._tls(),
        )
        try:
            answer = asyncio.run(send_call(call))
        except HanseiError as error:
            raise requests.ConnectionError(error.detail) from error
        response = requests.Response()
        response.status_code = answer.status
        return response

    def _tls(self) -> ssl.SSLContext | None:
        """With the files of OTEL_EXPORTER_OTLP_CERTIFICATE and its client certificates."""
        if self.verify is True and self.cert is None:
            return None
        context = ssl.create_default_context(
            cafile=self.verify if isinstance(self.verify, str) else None
        )
        if self.cert is not None:
            files = (self.cert,) if isinstance(self.cert, str) else self.cert
            context.load_cert_chain(*files)
        return context


def open_backend(endpoint: str, service: str) -> OpenTelemetryBackend:
    """`endpoint` is the base URL of the receiver, to which `/v1/traces` is added."""
    attributes = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    url = f"{endpoint.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint=url, session=_ExportSession())
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetryBackend(provider)
