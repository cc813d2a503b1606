"""Exports all rows of a tenant as NDJSON, in pages by primary key, so that any size needs a few
megabytes and no long transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Row, Select, Table, literal_column, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import Base, Sessions, current_tenant_id

ROWS_PER_PAGE = 200
LEFT_OUT = {
    "memory_vectors",
    "postings",
    "scope_stats",
    "idempotency_keys",
    "response_mentions",
    "llm_replies",
}
"""The search index, which follows from the memories, and rows that live for hours."""
SECRET_COLUMNS = {"password", "secret", "previous_secret", "secret_hash"}


async def export_rows(sessions: Sessions, tenant_id: UUID) -> AsyncGenerator[str]:
    """The lines of an export: first the tenant, then its tables by name, last the counts."""
    counts: Counter[str] = Counter()
    for table in _tables():
        after: Sequence[Any] | None = None
        while True:
            async with sessions.for_tenant(tenant_id) as session:
                rows, after = await _load_page(session, table, after)
            counts[table.name] += len(rows)
            for row in rows:
                yield json.dumps({"table": table.name, "row": row}, ensure_ascii=False) + "\n"
            if len(rows) < ROWS_PER_PAGE:
                break
    yield json.dumps({"table": None, "counts": dict(counts)}) + "\n"


def _tables() -> list[Table]:
    named = Base.metadata.tables
    owned = [
        table
        for name, table in sorted(named.items())
        if "tenant_id" in table.columns and name not in LEFT_OUT
    ]
    return [named["tenants"], *owned]


async def _load_page(
    session: AsyncSession, table: Table, after: Sequence[Any] | None
) -> tuple[list[dict[str, Any]], Sequence[Any] | None]:
    """A page of rows as JSON values, and the key of the last one."""
    owner: Column[Any] = table.c.id if table.name == "tenants" else table.c.tenant_id
    columns: list[Column[Any]] = list(table.primary_key.columns)
    key = [column for column in columns if column is not owner] or [owner]
    row_as_json = cast("ColumnElement[Any]", literal_column(f"to_jsonb({table.name})"))
    selected: list[ColumnElement[Any]] = [*key, row_as_json.label("exported")]
    query: Select[Any] = select(*selected).select_from(table)
    query = query.where(owner == current_tenant_id(session)).order_by(*key).limit(ROWS_PER_PAGE)
    if after is not None:
        query = query.where(tuple_(*key) > tuple_(*after))
    found: Sequence[Row[Any]] = (await session.execute(query)).all()
    rows = [
        {name: value for name, value in row.exported.items() if name not in SECRET_COLUMNS}
        for row in found
    ]
    return rows, tuple(found[-1])[: len(key)] if found else None
