"""Widens search results: memories in a cluster with a result, or that mention the same entities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.statements import fetch_rows, load_statement
from memory_api.memories.queries import get_memories
from memory_api.memories.tables import MemoryRow

RELATED_MEMORIES = load_statement("memories/queries.sql", "related_memories")
MAX_SEEDS = 10
"""The best results whose relations are followed."""


@dataclass(frozen=True)
class RelatedHit:
    """A memory that is related to results. `via` are entities (`tool:refund`) or `cluster`."""

    memory: MemoryRow
    weight: float
    related_to: Sequence[UUID]
    via: Sequence[str]


async def find_related(
    session: AsyncSession, project_id: str, memory_ids: Sequence[UUID], limit: int
) -> list[RelatedHit]:
    """The memories of the project that are related to the best of these results, best first."""
    if not memory_ids or not limit:
        return []
    parameters = {
        "project": project_id,
        "ids": list(memory_ids[:MAX_SEEDS]),
        "limit": limit + len(memory_ids),
    }
    rows = await fetch_rows(session, RELATED_MEMORIES, parameters)
    rows = [row for row in rows if row.memory_id not in memory_ids][:limit]
    memories = await get_memories(session, [row.memory_id for row in rows])
    return [
        RelatedHit(memories[row.memory_id], float(row.weight), row.of_ids, row.via)
        for row in rows
        if row.memory_id in memories
    ]
