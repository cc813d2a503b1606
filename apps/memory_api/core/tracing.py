"""Traces of requests, runs, statements and model calls ("spans" of OpenTelemetry).

Off unless `configure_tracing` got an endpoint; `core/open_telemetry.py` and the OpenTelemetry SDK
are imported only then. While tracing is off, a span costs about a microsecond.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Literal, NamedTuple, Protocol

from memory_api.core.errors import ConfigurationError

AttributeValue = str | int | float | bool | list[str]
Attributes = Mapping[str, AttributeValue]
SpanKind = Literal["internal", "server", "client", "producer", "consumer"]


class ActiveSpan(Protocol):
    """A span that has begun."""

    def set(self, name: str, value: AttributeValue) -> None: ...

    def rename(self, name: str) -> None:
        """Replace the name, once it is known."""
        ...

    def fail(self, error_type: str) -> None:
        """Mark the operation as failed. `error_type` has few values, such as a class name."""
        ...


class SpanIds(NamedTuple):
    """The IDs of the active span, in hexadecimal."""

    trace_id: str
    span_id: str


class TracingBackend(Protocol):
    """What records and exports spans: `core/open_telemetry.py`."""

    def span(
        self, name: str, kind: SpanKind, parent: str | None, attributes: Attributes
    ) -> AbstractContextManager[ActiveSpan]: ...
    def record_finished(
        self, name: str, kind: SpanKind, seconds: float, attributes: Attributes, error: str | None
    ) -> None: ...
    def current_ids(self) -> SpanIds | None: ...
    def traceparent(self) -> str | None: ...
    def shut_down(self) -> None: ...


class _NoSpan:
    def set(self, name: str, value: AttributeValue) -> None: ...
    def rename(self, name: str) -> None: ...
    def fail(self, error_type: str) -> None: ...


_NO_SPAN = _NoSpan()


class _Tracing:
    """The backend of this process; None while tracing is off."""

    backend: TracingBackend | None = None


def configure_tracing(endpoint: str | None, service: str) -> None:
    """Export spans to `endpoint` (base URL of an OTLP/HTTP receiver) as the service `service`. None
    leaves tracing off. Raises `ConfigurationError` without the extra `otel`.
    """
    if endpoint is None:
        return
    module = _backend_module()
    _Tracing.backend = module.open_backend(endpoint, service)


def check_tracing(endpoint: str | None) -> None:
    """Raises `ConfigurationError` if `endpoint` is set without the extra `otel`."""
    if endpoint is not None:
        _backend_module()


def _backend_module() -> ModuleType:
    try:
        return importlib.import_module("memory_api.core.open_telemetry")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed."
            " Install hansei-server[otel], or unset the variable."
        ) from error


def shut_down_tracing() -> None:
    """Export the spans that are waiting and stop. Blocks up to a few seconds."""
    backend, _Tracing.backend = _Tracing.backend, None
    if backend is not None:
        backend.shut_down()


def is_tracing() -> bool:
    return _Tracing.backend is not None


@contextmanager
def span(
    name: str,
    kind: SpanKind = "internal",
    *,
    parent: str | None = None,
    attributes: Attributes | None = None,
) -> Generator[ActiveSpan]:
    """Record the block as a span. `parent` is a W3C `traceparent`; by default, the active span.

    An exception marks the span as failed with the name of its class; its text, which may contain
    data of a tenant, is not recorded.
    """
    backend = _Tracing.backend
    if backend is None:
        yield _NO_SPAN
        return
    with backend.span(name, kind, parent, attributes or {}) as active:
        yield active


def record_finished_span(
    name: str,
    kind: SpanKind,
    seconds: float,
    attributes: Attributes,
    error: str | None = None,
) -> None:
    """Record an operation that ended now and took `seconds`, below the active span. Without an
    active span, nothing is recorded.
    """
    if _Tracing.backend is not None:
        _Tracing.backend.record_finished(name, kind, seconds, attributes, error)


def current_span_ids() -> SpanIds | None:
    backend = _Tracing.backend
    return backend.current_ids() if backend is not None else None


def current_traceparent() -> str | None:
    """The active span as a W3C `traceparent`, to continue its trace in another process."""
    backend = _Tracing.backend
    return backend.traceparent() if backend is not None else None
