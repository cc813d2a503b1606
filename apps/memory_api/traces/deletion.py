"""Deletes traces with everything that quotes them: events, evaluations, results of runs, agent
runs, stored responses, and the episode. What was learned from them stays, unless it is erased too.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import fetch_column, fetch_rows, load_statement
from memory_api.memories.erasure import erase_memories
from memory_api.memories.tables import MemoryRow

ERASE_RUNS = load_statement("traces/storage.sql", "erase_runs")
ERASE_REPLIES = load_statement("traces/storage.sql", "erase_replies")
ERASE_QUERIES = load_statement("traces/storage.sql", "erase_queries")
ERASE_RESPONSES = load_statement("traces/storage.sql", "erase_responses")
DELETE_AGENT_RUNS = load_statement("traces/storage.sql", "delete_agent_runs")
COPY_SUBJECTS = load_statement("traces/storage.sql", "copy_subjects")
DELETE_TRACES = load_statement("traces/storage.sql", "delete_traces")


async def delete_traces(
    session: AsyncSession, trace_ids: Sequence[UUID], *, with_episodes: bool = True
) -> int:
    """Deletes traces of the session's tenant. Returns the number of deleted traces.

    A run of one of them that is in progress fails when it saves its result.
    """
    parameters = {"ids": list(trace_ids)}
    run_ids = await fetch_column(session, ERASE_RUNS, parameters)
    await fetch_rows(session, ERASE_REPLIES, {"ids": run_ids})
    await fetch_rows(session, ERASE_QUERIES, parameters)
    await fetch_rows(session, ERASE_RESPONSES, parameters)
    await fetch_rows(session, DELETE_AGENT_RUNS, parameters)
    if with_episodes:
        episodes = await session.scalars(
            select(MemoryRow)
            .where(
                MemoryRow.tenant_id == current_tenant_id(session),
                MemoryRow.trace_id.in_(trace_ids),
                MemoryRow.kind == "episode",
            )
            .with_for_update()
        )
        await erase_memories(session, episodes.all())
    await fetch_rows(session, COPY_SUBJECTS, parameters)
    return len(await fetch_rows(session, DELETE_TRACES, parameters))
