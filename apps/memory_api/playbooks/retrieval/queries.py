"""Statements on retrievals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import tenant_transaction
from memory_api.core.resources import read_sql
from memory_api.core.statements import fetch_rows, load_statement

SERVED_OUTCOMES = load_statement("playbooks/queries.sql", "served_outcomes")
SERVED_TRACES = load_statement("playbooks/queries.sql", "served_traces")

UNPROVEN_HARMFUL_VERDICTS = read_sql("playbooks/queries.sql", "unproven_harmful_verdicts")


async def count_unproven_harmful_verdicts(
    connection: asyncpg.Connection[Any], tenant_id: UUID, scope: int, keys: Sequence[str]
) -> dict[str, int]:
    """Harmful verdicts that one API key may have invented, by key of the bullet. On the connection
    of the search: a request that waits for a second one could wait for itself.
    """
    async with tenant_transaction(connection, tenant_id):
        rows = await connection.fetch(UNPROVEN_HARMFUL_VERDICTS, tenant_id, scope, list(keys))
    return {row["key"]: row["verdict_count"] for row in rows}


async def count_served_outcomes(session: AsyncSession, scope: int, bullet: UUID, key: str) -> Any:
    """`run_count`, `success_count` and `judged_count` of the agent runs that had a bullet in their
    prompt.
    """
    values = {"scope": scope, "bullet": bullet, "key": key}
    return (await fetch_rows(session, SERVED_OUTCOMES, values))[0]


async def list_served_traces(
    session: AsyncSession, scope: int, key: str, *, limit: int
) -> Sequence[Any]:
    """The latest searches and renders of the last 90 days that returned a bullet, newest first,
    with the trace that names them: rows (id, kind, query, created_at, trace_id,
    outcome, task_description).
    """
    return await fetch_rows(session, SERVED_TRACES, {"scope": scope, "key": key, "limit": limit})
