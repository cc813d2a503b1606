"""Removes the content of memories for good. The row stays without content, so that links, verdicts
and versions still show that there was something.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.log_context import current_actor
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.memories.index.writer import unindex_memories
from memory_api.memories.tables import MemoryRow, TombstoneRow

ERASE_MEMORIES = load_statement("memories/queries.sql", "erase_memories")
ERASE_RELATIONS = load_statement("memories/queries.sql", "erase_relations")
ERASE_HISTORY = load_statement("memories/queries.sql", "erase_history")


async def erase_memories(session: AsyncSession, memories: Sequence[MemoryRow]) -> None:
    """Removes the content of locked memories from the row, the search index and the history. A
    bullet must have been deleted from its playbook before.
    """
    if not memories:
        return
    await unindex_memories(session, [memory for memory in memories if memory.status == "active"])
    await session.flush()
    parameters = {"ids": [memory.id for memory in memories]}
    await fetch_rows(session, ERASE_MEMORIES, parameters)
    await fetch_rows(session, ERASE_HISTORY, parameters)
    await fetch_rows(session, ERASE_RELATIONS, parameters)
    for memory in memories:
        session.expunge(memory)  # its columns are those before


async def add_tombstones(
    session: AsyncSession,
    kind: str,
    target_ids: Sequence[str],
    *,
    reason: str | None,
    erasure_id: UUID | None = None,
) -> None:
    """Records that these were erased."""
    rows = [
        {
            "tenant_id": current_tenant_id(session),
            "target_kind": kind,
            "target_id": target_id,
            "erasure_id": erasure_id,
            "reason": reason,
            "actor": current_actor(),
        }
        for target_id in target_ids
    ]
    if rows:
        await session.execute(insert(TombstoneRow).values(rows).on_conflict_do_nothing())
