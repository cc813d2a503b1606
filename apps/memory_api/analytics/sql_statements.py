"""Statements that people write, run with the read-only login of their tenant.

PostgreSQL decides what a statement may read and do, not a parser of ours: each statement gets a
connection of its own, logged in as a role that can only select the rows of one tenant
(docs/decisions/sql-page.md). The connection is closed afterwards, so that no setting or lock
survives, and its transaction is never committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from time import perf_counter
from typing import Any

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement
from sqlalchemy.engine import make_url

from memory_api.analytics.tables import SqlCredentialRow
from memory_api.core.db import Sessions, open_engine
from memory_api.core.db_errors import DatabaseLoginRefused, DatabaseUnavailable
from memory_api.core.errors import InvalidRequest, TooManyRequests

STATEMENT_SECONDS = 10.0
CLIENT_EXTRA_SECONDS = 2.0
"""How much longer this process waits, for a statement that switches off its own limit."""
CLOSE_SECONDS = 2.0
MAX_COLUMNS = 100
MAX_CELL_LENGTH = 10_000
MAX_RESULT_LENGTH = 10_000_000
"""Characters. The result ends with the row that exceeds it."""
CELLS_PER_FETCH = 1_000
_NUMBERS = {"int2", "int4", "int8", "float4", "float8", "numeric"}
_ONE_SELECT = "Only one SELECT statement (or WITH … SELECT) can run here."

_UNKNOWN_TYPE = (
    "A column has a type that cannot be shown, such as `anyarray`. Convert it with `::text`."
)


class StatementRefused(InvalidRequest):
    """PostgreSQL refuses the statement."""


class StatementTimeout(InvalidRequest):
    """The statement takes longer than 10 seconds. Name a period: `costs(since, until)`."""


class TooManyStatements(TooManyRequests):
    """Too many statements of this tenant are running. Retry in a few seconds."""


class SqlLoginRefused(DatabaseLoginRefused):
    """The database refuses the login of this page. Ask the operator to create a new one."""


@dataclass(frozen=True)
class StatementResult:
    """Rows of text; numbers are decimal numbers."""

    columns: Sequence[str]
    is_number: Sequence[bool]
    rows: Sequence[Sequence[str | Decimal | None]]
    truncated: bool
    """Whether there are more rows, or a text was cut off."""
    milliseconds: float = 0


async def run_statement(
    url: str,
    credential: SqlCredentialRow,
    statement: str,
    limit: int,
    seconds: float = STATEMENT_SECONDS,
) -> StatementResult:
    """Run one SELECT and return at most `limit` rows. `url` names the database.

    Raises `StatementRefused` with the message of PostgreSQL, `StatementTimeout`,
    `TooManyStatements`, `SqlLoginRefused` and `DatabaseUnavailable`.
    """
    started = perf_counter()
    refused: InvalidRequest | None = None
    async with _connect(url, credential, seconds) as connection:
        try:
            async with asyncio.timeout(seconds + CLIENT_EXTRA_SECONDS):
                result = await _execute(connection, statement, limit, seconds)
        except StatementRefused as error:
            refused = error
        except (TimeoutError, asyncpg.QueryCanceledError):
            refused = StatementTimeout()
        except asyncpg.PostgresError as error:
            refused = StatementRefused(_describe(error, statement), field="statement")
        else:
            return replace(result, milliseconds=(perf_counter() - started) * 1000)
    # Raised here, because inside the block some of them would count as a lost connection.
    raise refused


@asynccontextmanager
async def _connect(
    url: str, credential: SqlCredentialRow, seconds: float
) -> AsyncGenerator[asyncpg.Connection[Any]]:
    """A new connection as the login. On exit, it is closed, and what it still runs is canceled."""
    login = make_url(url).set(username=credential.role_name, password=credential.password)
    engine = open_engine(
        login.render_as_string(hide_password=False),
        pool_size=1,
        statement_cache=0,
        codecs=False,
        timeout=seconds + CLIENT_EXTRA_SECONDS,
    )
    sessions = Sessions(engine)
    try:
        async with sessions.raw_connection() as connection:
            try:
                yield connection
            finally:
                with suppress(TimeoutError):  # then it is aborted
                    await connection.close(timeout=CLOSE_SECONDS)
    except DatabaseLoginRefused as error:
        raise SqlLoginRefused from error
    except DatabaseUnavailable as error:
        if isinstance(error.__cause__, asyncpg.TooManyConnectionsError):
            raise TooManyStatements from error
        raise
    finally:
        await sessions.close()


async def _execute(
    connection: asyncpg.Connection[Any], statement: str, limit: int, seconds: float
) -> StatementResult:
    await connection.execute(
        f"begin read only; set local statement_timeout = {round(seconds * 1000)};"
        " set local lock_timeout = '2s'"
    )
    prepared = await _prepare(connection, statement)
    columns = prepared.get_attributes()
    rows, truncated = await _fetch(connection, prepared, limit)
    is_number = [column.type.name in _NUMBERS for column in columns]
    return StatementResult(
        columns=[column.name for column in columns],
        is_number=is_number,
        rows=[_to_values(row, is_number) for row in rows],
        truncated=truncated,
    )


async def _prepare(connection: asyncpg.Connection[Any], statement: str) -> PreparedStatement[Any]:
    """Parse the statement, without executing it."""
    try:
        prepared = await connection.prepare(statement)
    except asyncpg.InternalClientError as error:  # the driver cannot read a type
        raise StatementRefused(_UNKNOWN_TYPE, field="statement") from error
    columns = prepared.get_attributes()
    if not columns:
        raise StatementRefused(_ONE_SELECT, field="statement")
    if len(columns) > MAX_COLUMNS:
        raise StatementRefused(
            f"The statement has {len(columns)} columns. Select at most {MAX_COLUMNS}.",
            field="statement",
        )
    if prepared.get_parameters():
        raise StatementRefused("Write values in place of parameters ($1).", field="statement")
    return prepared


async def _fetch(
    connection: asyncpg.Connection[Any], prepared: PreparedStatement[Any], limit: int
) -> tuple[list[Sequence[str | None]], bool]:
    """The rows as text, and whether something is missing.

    In a subquery, PostgreSQL accepts a SELECT only. The statement was parsed alone before, so that
    it cannot close the parenthesis.
    """
    names = [f"c{number}" for number in range(len(prepared.get_attributes()))]
    cells = ", ".join(f"left({name}::text, {MAX_CELL_LENGTH + 1})" for name in names)
    inner = prepared.get_query().strip().removesuffix(";")
    try:
        wrapped = await connection.prepare(
            f"select {cells} from (\n{inner}\n) as statement ({', '.join(names)})"
        )
    except asyncpg.PostgresSyntaxError as error:
        raise StatementRefused(_ONE_SELECT, field="statement") from error
    cursor = await wrapped.cursor()
    rows: list[Sequence[str | None]] = []
    length, is_cut = 0, False
    while len(rows) <= limit and length <= MAX_RESULT_LENGTH:
        count = min(max(1, CELLS_PER_FETCH // len(names)), limit + 1 - len(rows))
        batch = await cursor.fetch(count)
        for row in batch:
            texts = [text for text in row if text is not None]
            length += sum(map(len, texts))
            is_cut = is_cut or any(len(text) > MAX_CELL_LENGTH for text in texts)
            rows.append(tuple(row))
        if len(batch) < count:
            return rows, is_cut
    return rows[:limit], True


def _to_values(
    row: Sequence[str | None], is_number: Sequence[bool]
) -> tuple[str | Decimal | None, ...]:
    return tuple(
        Decimal(text) if text is not None and number else _shorten(text)
        for text, number in zip(row, is_number, strict=True)
    )


def _shorten(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_CELL_LENGTH else f"{text[:MAX_CELL_LENGTH]}…"


def _describe(error: asyncpg.PostgresError, statement: str) -> str:
    """The message of PostgreSQL, with the line if it is known."""
    text = str(error.args[0] if error.args else error).strip().rstrip(".")
    if "multiple commands" in text:
        return "Only one statement can run at a time."
    if isinstance(error, asyncpg.InsufficientPrivilegeError | asyncpg.ReadOnlySQLTransactionError):
        return (
            f"PostgreSQL refuses the statement: {text}. The login of this page can only read the"
            " views and functions of the schema `analytics`."
        )
    position = str(getattr(error, "position", None) or "")
    if position.isdigit():
        line = statement.count("\n", 0, int(position) - 1) + 1
        text = f"line {line}: {text}"
    hint = getattr(error, "hint", None)
    return f"PostgreSQL refuses the statement: {text}." + (f" {hint}" if hint else "")
