"""What every log line carries and what none may contain, and who acts.

`bind_log_context` adds the IDs of the tenant, API key, run and trace. `redact_line` replaces
secrets in any field, message or stack trace before the line is written.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import structlog

from memory_api.core.secret_redaction import redact_value
from memory_api.core.tracing import current_span_ids

LOG_CONTEXT = ("tenant_id", "key_id", "run_id", "trace_id")
"""IDs that lines of a request or run carry, besides `request_id` and `kind`."""
UNCHECKED_FIELDS = {
    *("event", "level", "timestamp", "request_id", "method", "route", "status", "milliseconds"),
    *("otel_trace_id", "otel_span_id", *LOG_CONTEXT),
}
"""Fields whose values are made by the service. All others are searched for secrets."""


def bind_log_context(**ids: UUID | str | None) -> None:
    """Add IDs to all further lines of this request or run. Names are those of `LOG_CONTEXT`."""
    structlog.contextvars.bind_contextvars(
        **{name: str(value) for name, value in ids.items() if value is not None}
    )


@contextmanager
def bound_log_context(**ids: UUID | str | None) -> Generator[None]:
    """`bind_log_context` for a block. Also accepts `kind`, the kind of a run."""
    known = {name: str(value) for name, value in ids.items() if value is not None}
    with structlog.contextvars.bound_contextvars(**known):
        yield


def current_actor() -> str:
    """Who acts: `key:<ID>` in an authenticated request, `run:<ID>` in a worker, else
    `command_line`.
    """
    context = structlog.contextvars.get_contextvars()
    for name in ("key", "run"):
        identifier = context.get(f"{name}_id")
        if identifier is not None:
            return f"{name}:{identifier}"
    return "command_line"


def unbind_log_context() -> None:
    """Remove the IDs of `LOG_CONTEXT`, at the end of a request."""
    structlog.contextvars.unbind_contextvars(*LOG_CONTEXT)


def add_span_ids(
    _logger: object, _method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Add the OpenTelemetry IDs of the active span, to find the line from a trace."""
    ids = current_span_ids()
    if ids is not None:
        line["otel_trace_id"], line["otel_span_id"] = ids
    return line


def redact_line(
    _logger: object, _method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Replace secrets in the fields of a line. The message of another library is the event."""
    checked: Mapping[str, Any] = {
        name: value
        for name, value in line.items()
        if (name not in UNCHECKED_FIELDS or (name == "event" and "_record" in line))
        and not name.startswith("_")
    }
    if checked:
        line.update(redact_value(_to_text(checked))[0])
    return line


def _to_text(value: Any) -> Any:
    """`value` with everything as text that is neither JSON nor a number."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): _to_text(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case list() | tuple() | set() | frozenset():
            return [_to_text(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return str(value)
