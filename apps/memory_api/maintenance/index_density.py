"""Rebuild the index that search reads once its pages are half empty.

The keys of a scope ascend in the middle of the index of all scopes. PostgreSQL splits a full page
there in half and never fills the first half again, so a search reads almost twice as many pages as
it needs (docs/decisions/search.md). Only the owner of the tables can rebuild an index, and only
outside a transaction, so this work connects by `HANSEI_OWNER_URL`.
"""

from __future__ import annotations

import asyncpg
import structlog
from sqlalchemy import text

from memory_api.core.db import Sessions
from memory_api.maintenance.vector_indexes import TRY_LOCK

log = structlog.get_logger()

INDEX = "memory_vectors_pkey"
SPARSE_RATIO = 1.6
"""Size of a sparse index relative to its table. The index contains every column: it has 1.05 to
1.52 times the size of the table when it is new, by the dimensions of the vectors, and up to 2.0
later. With 1,000 dimensions and more, a page has room for two rows in any case.
"""
MIN_BYTES = 1024**2
"""Smaller indexes are not rebuilt: search reads them quickly in any case."""
IS_SPARSE = (
    f"select pg_relation_size('{INDEX}')"
    f" > greatest({MIN_BYTES}, {SPARSE_RATIO} * pg_relation_size('memory_vectors'))"
)
REBUILD = f"reindex index concurrently {INDEX}"
DROP_UNFINISHED = (
    f"drop index concurrently if exists {INDEX}_ccnew",
    f"drop index concurrently if exists {INDEX}_ccold",
)
"""What PostgreSQL leaves of a rebuild that was interrupted."""


async def rebuild_sparse_index(sessions: Sessions, owner_url: str | None) -> list[str]:
    """Rebuilds the index of all vectors if it is sparse, without blocking reads and writes. Returns
    the names of the rebuilt indexes. Does nothing without `owner_url`.
    """
    async with sessions.without_tenant() as session:
        is_sparse = await session.scalar(text(IS_SPARSE))
    if owner_url is None or not is_sparse:
        return []
    owner = await asyncpg.connect(owner_url)
    try:
        # Another process may be rebuilding it, or may have done so by now.
        if not await owner.fetchval(TRY_LOCK) or not await owner.fetchval(IS_SPARSE):
            return []
        for statement in (*DROP_UNFINISHED, REBUILD):
            await owner.execute(statement)
    finally:
        await owner.close()
    log.info("index_rebuilt", index=INDEX)
    return [INDEX]
