"""A span for each statement, with the database conventions of OpenTelemetry.

A span has the text of the statement, whose values are parameters, and never a parameter.
Transaction control has no text, because the tenant's ID is part of it.
"""

from __future__ import annotations

import time
from typing import Any

from asyncpg.connection import LoggedQuery
from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue
from sqlalchemy import Connection, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine

from memory_api.core.db_errors import sqlstate
from memory_api.core.tracing import record_finished_span

MAX_STATEMENT_LENGTH = 2_000
"""Characters of a statement that a span shows."""
TRANSACTION_CONTROL = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET")
_STARTED_AT = "hansei_statement_started_at"


def record_statements(engine: AsyncEngine) -> None:
    """Record the statements of an engine, and those that use its connections directly."""
    listen = event.listens_for

    @listen(engine.sync_engine, "connect")
    def log_driver_calls(connection: Any, _record: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.driver_connection.add_query_logger(_record_driver_call)

    @listen(engine.sync_engine, "before_cursor_execute")
    def start(connection: Connection, *_: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.info[_STARTED_AT] = time.perf_counter()

    @listen(engine.sync_engine, "after_cursor_execute")
    def end(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        _record(statement, time.perf_counter() - connection.info.pop(_STARTED_AT))

    @listen(engine.sync_engine, "handle_error")
    def fail(context: ExceptionContext) -> None:  # pyright: ignore[reportUnusedFunction]
        info = context.connection.info if context.connection is not None else {}
        started_at: float | None = info.pop(_STARTED_AT, None)
        if started_at is not None and context.statement is not None:
            error = context.original_exception
            _record(context.statement, time.perf_counter() - started_at, error)


def _record_driver_call(call: LoggedQuery) -> None:
    _record(call.query, call.elapsed, call.exception)


def _record(statement: str, seconds: float, error: BaseException | None = None) -> None:
    operation = statement.lstrip(" (").split(None, 1)[0].rstrip(";").upper()
    attributes: dict[str, AttributeValue] = {
        "db.system.name": "postgresql",
        "db.operation.name": operation,
    }
    if operation not in TRANSACTION_CONTROL:
        attributes["db.query.text"] = statement[:MAX_STATEMENT_LENGTH]
    code = None
    if error is not None:
        code = sqlstate(error) or type(error).__name__
        attributes["db.response.status_code"] = code
    record_finished_span(operation, SpanKind.CLIENT, seconds, attributes, code)
