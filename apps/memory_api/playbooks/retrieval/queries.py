"""Statements on retrievals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import current_tenant_id
from apps.memory_api.core.resources import load_sql

SERVED_TRACES = load_sql("playbooks/queries.sql", "served_traces")


async def list_served_traces(
    session: AsyncSession, scope: int, key: str, *, limit: int
) -> Sequence[Any]:
    """The latest searches and renders of the last 90 days that returned a bullet, newest first,
    with the trace that names them: rows (id, kind, query, created_at, trace_id,
    outcome, task_description).
    """
    values = {"tenant": current_tenant_id(session), "scope": scope, "key": key, "limit": limit}
    return (await session.execute(SERVED_TRACES, values)).all()
