"""Spans of requests, runs, statements and model calls (OpenTelemetry).

Off unless `configure_tracing` got an endpoint; `core/open_telemetry.py` and the OpenTelemetry SDK
are imported only then. While tracing is off, a span costs about a microsecond. The tracer is not
OpenTelemetry's global one, which belongs to the program.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from memory_api.core.errors import ConfigurationError

NANOSECONDS = 1_000_000_000
TRACEPARENT = "traceparent"
_PROPAGATOR = TraceContextTextMapPropagator()


class _Tracing:
    """The provider and the tracer of this process; None while tracing is off."""

    provider: Any = None
    tracer: trace.Tracer | None = None


def configure_tracing(endpoint: str | None, service: str) -> None:
    """Export spans to `endpoint` (base URL of an OTLP/HTTP receiver) as the service `service`. None
    leaves tracing off. Raises `ConfigurationError` without the extra `otel`.
    """
    if endpoint is None:
        return
    _Tracing.provider = _sdk_module().open_provider(endpoint, service)
    _Tracing.tracer = _Tracing.provider.get_tracer("hansei")


def check_tracing(endpoint: str | None) -> None:
    """Raises `ConfigurationError` if `endpoint` is set without the extra `otel`."""
    if endpoint is not None:
        _sdk_module()


def _sdk_module() -> ModuleType:
    try:
        return importlib.import_module("memory_api.core.open_telemetry")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed."
            " Install hansei-server[otel], or unset the variable."
        ) from error


def shut_down_tracing() -> None:
    """Export the spans that are waiting and stop. Blocks up to a few seconds."""
    provider, _Tracing.provider, _Tracing.tracer = _Tracing.provider, None, None
    if provider is not None:
        _sdk_module().shut_down(provider)


def is_tracing() -> bool:
    return _Tracing.tracer is not None


@contextmanager
def span(
    name: str,
    kind: SpanKind = SpanKind.INTERNAL,
    *,
    parent: str | None = None,
    attributes: Attributes = None,
) -> Generator[Span]:
    """Record the block as a span. `parent` is a W3C `traceparent`; by default, the active span.

    An exception marks the span as failed with the name of its class; its text, which may contain
    data of a tenant, is not recorded.
    """
    if _Tracing.tracer is None:
        yield INVALID_SPAN
        return
    context = _PROPAGATOR.extract({TRACEPARENT: parent}) if parent else None
    active = _Tracing.tracer.start_span(name, context, kind, attributes)
    token = otel_context.attach(trace.set_span_in_context(active, context))
    try:
        yield active
    except BaseException as error:
        mark_failed(active, type(error).__name__)
        raise
    finally:
        otel_context.detach(token)
        active.end()


def mark_failed(active: Span, error_type: str) -> None:
    """Mark the operation as failed. `error_type` has few values, such as a class name."""
    active.set_attribute("error.type", error_type)
    active.set_status(StatusCode.ERROR)


def record_finished_span(
    name: str, kind: SpanKind, seconds: float, attributes: Attributes, error: str | None = None
) -> None:
    """Record an operation that ended now and took `seconds`, below the active span. Without an
    active span, nothing is recorded.
    """
    if _Tracing.tracer is None or not trace.get_current_span().get_span_context().is_valid:
        return
    ended_at = time.time_ns()
    started_at = ended_at - int(seconds * NANOSECONDS)
    finished = _Tracing.tracer.start_span(
        name, kind=kind, attributes=attributes, start_time=started_at
    )
    if error is not None:
        mark_failed(finished, error)
    finished.end(ended_at)


def current_span_ids() -> tuple[str, str] | None:
    """The IDs of the active trace and span, in hexadecimal."""
    context = trace.get_current_span().get_span_context()
    if _Tracing.tracer is None or not context.is_valid:
        return None
    return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)


def current_traceparent() -> str | None:
    """The active span as a W3C `traceparent`, to continue its trace in another process."""
    carrier: dict[str, str] = {}
    if _Tracing.tracer is not None:
        _PROPAGATOR.inject(carrier)
    return carrier.get(TRACEPARENT)
