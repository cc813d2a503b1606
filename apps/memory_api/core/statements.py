"""Statements that the driver executes in the transaction of a session: of `.sql` files, or compiled
once from SQLAlchemy.

For a statement that returns few rows, SQLAlchemy needs ten times the CPU time of the driver (0.24
and 0.02 ms). So what a worker executes for every trace goes to the driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import asyncpg
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql import ClauseElement

from memory_api.core.db import asyncpg_connection, current_tenant_id
from memory_api.core.db_errors import (
    DatabaseUnavailable,
    record_if_disk_full,
    translate_connection_errors,
)
from memory_api.core.resources import read_sql

_DIALECT = asyncpg_dialect.dialect()
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)\b(?!:)")


@dataclass(frozen=True)
class Statement:
    """A statement with `$1` for the first of `parameters`."""

    text: str
    parameters: tuple[str, ...]


class StatementRow(asyncpg.Record):
    """A row whose columns are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


Row = TypeVar("Row", bound=StatementRow)


def load_statement(path: str, name: str) -> Statement:
    """The statement after `-- name: <name>` in a `.sql` file, with `:name` parameters."""
    return parse_statement(read_sql(path, name))


def parse_statement(text: str) -> Statement:
    """A statement with `:name` parameters."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${numbers.setdefault(match[1], len(numbers) + 1)}"

    return Statement(_PARAMETER.sub(number, text), tuple(numbers))


def compile_statement(statement: ClauseElement, *columns: str) -> Statement:
    """A statement of SQLAlchemy whose parameters are its `bindparam`s. An insert sets `columns`.

    Its rows have columns and no objects, and its values go to the driver unchanged.
    """
    compiled: Any = statement.compile(dialect=_DIALECT, column_keys=columns or None)
    return Statement(str(compiled), tuple(compiled.positiontup))


@overload
async def fetch_rows(
    session: AsyncSession, statement: Statement, parameters: Mapping[str, Any]
) -> list[StatementRow]: ...
@overload
async def fetch_rows(
    session: AsyncSession, statement: Statement, parameters: Mapping[str, Any], row_class: type[Row]
) -> list[Row]: ...
async def fetch_rows(
    session: AsyncSession,
    statement: Statement,
    parameters: Mapping[str, Any],
    row_class: type[StatementRow] = StatementRow,
) -> list[Any]:
    """Execute a statement after the pending changes of the session. `:tenant` is that of the
    session unless `parameters` name one. The columns that it returns are those of the driver: JSON
    is decoded. Raises `DatabaseUnavailable` and `PostgresError`.
    """
    changes = session.sync_session
    if changes.new or changes.dirty or changes.deleted:
        await session.flush()
    driver = await asyncpg_connection(session)
    if "tenant" in statement.parameters and "tenant" not in parameters:
        parameters = {**parameters, "tenant": current_tenant_id(session)}
    values = [parameters[name] for name in statement.parameters]
    try:
        with translate_connection_errors():
            return await driver.fetch(statement.text, *values, record_class=row_class)
    except DatabaseUnavailable:
        await (await session.connection()).invalidate()
        raise
    except asyncpg.PostgresError as error:
        record_if_disk_full(error)
        raise


async def fetch_column(
    session: AsyncSession, statement: Statement, parameters: Mapping[str, Any]
) -> list[Any]:
    """The first column of the rows."""
    return [row[0] for row in await fetch_rows(session, statement, parameters)]


async def fetch_value(
    session: AsyncSession, statement: Statement, parameters: Mapping[str, Any]
) -> Any:
    """The first column of the first row; None without a row."""
    return next(iter(await fetch_column(session, statement, parameters)), None)
