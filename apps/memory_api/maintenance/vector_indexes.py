"""Create and drop the HNSW indexes of large scopes.

Only the owner of the tables can create an index, and only outside a transaction, so this work
connects by `HANSEI_OWNER_URL`. Without it every search is exact (docs/decisions/search.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import structlog

from memory_api.core.db import Sessions, asyncpg_connection
from memory_api.embeddings.queries import list_embedding_models
from memory_api.memories.index.scopes import find_labels
from memory_api.memories.queries import count_indexed, list_indexed_models

log = structlog.get_logger()

CREATE_ABOVE_ROWS = 50_000
"""A scope with at least this many rows gets an index."""
DROP_BELOW_ROWS = 25_000
"""A scope with fewer rows loses its index. Far below `CREATE_ABOVE_ROWS`, so that no scope
alternates.
"""
POLL_INTERVAL_SECONDS = 1.0
TRY_LOCK = "select pg_try_advisory_lock(hashtextextended('hansei.vector_index', 0))"
CREATE_INDEX = (
    "create index concurrently {name} on memory_vectors"
    " using hnsw ((embedding::halfvec({dimensions})) halfvec_ip_ops)"
    " with (m = 16, ef_construction = 64)"
    " where tenant_id = '{tenant}' and scope_id = {scope_id} and model_label_id = {model_label_id}"
)

LIST_INDEXES = (
    "select c.relname, x.indisvalid and x.indisready valid"
    " from pg_class c join pg_index x on x.indexrelid = c.oid"
    " where x.indrelid = 'memory_vectors'::regclass and starts_with(c.relname, $1)"
)


@dataclass(frozen=True)
class IndexedScope:
    """The rows that one index covers."""

    tenant_id: UUID
    scope_id: int
    model_label_id: int

    @property
    def index(self) -> str:
        """The index name; `hansei_search` looks for it."""
        return f"hansei_hnsw_{self.tenant_id.hex}_{self.scope_id}_{self.model_label_id}"


async def sync_vector_indexes(
    sessions: Sessions,
    owner_url: str | None,
    tenant_id: UUID,
    *,
    include_filling_models: bool = False,
) -> dict[str, list[str]]:
    """Creates and drops the vector indexes of a tenant. Returns their names.

    `include_filling_models` also creates indexes for models that are being filled. They come late,
    because filling is faster without an index.
    """
    changes: dict[str, list[str]] = {"created": [], "dropped": []}
    plan = partial(_plan, sessions, tenant_id, include_filling_models)
    if owner_url is None or not any(await plan()):
        return changes
    owner = await asyncpg.connect(owner_url)
    try:
        if not await owner.fetchval(TRY_LOCK):  # an unfinished index looks like a failed one
            return changes
        missing, obsolete = await plan()
        for name in obsolete:
            await drop_index(owner, name)
            changes["dropped"].append(name)
        for scope, dimensions in missing.items():
            changes["created"].append(await create_index(owner, scope, dimensions))
    finally:
        await owner.close()
    if changes["created"] or changes["dropped"]:
        log.info("vector_indexes_changed", tenant_id=str(tenant_id), **changes)
    return changes


async def missing_indexes(sessions: Sessions, tenant_id: UUID) -> Sequence[IndexedScope]:
    """The large scopes of a tenant that have no vector index."""
    missing, _ = await _plan(sessions, tenant_id, include_filling_models=False)
    return list(missing)


async def ensure_vector_indexes(sessions: Sessions, owner_url: str | None, tenant_id: UUID) -> None:
    """Creates the missing indexes of a tenant, also of the model that it moves to, and waits for
    indexes that another process creates.

    Returns at once without `owner_url`.
    """
    while owner_url is not None and any(await _plan(sessions, tenant_id, True)):
        changes = await sync_vector_indexes(
            sessions, owner_url, tenant_id, include_filling_models=True
        )
        if not any(changes.values()):
            await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def create_index(owner: asyncpg.Connection[Any], scope: IndexedScope, dimensions: int) -> str:
    """Creates the index of a scope without blocking reads and writes. Returns its name."""
    await owner.execute("set maintenance_work_mem = '512MB'")
    await owner.execute(
        CREATE_INDEX.format(
            name=scope.index,
            dimensions=int(dimensions),
            tenant=UUID(str(scope.tenant_id)),
            scope_id=int(scope.scope_id),
            model_label_id=int(scope.model_label_id),
        )
    )
    return scope.index


async def drop_index(owner: asyncpg.Connection[Any], name: str) -> None:
    quoted_name = await owner.fetchval("select quote_ident($1)", name)
    await owner.execute(f"drop index concurrently if exists {quoted_name}")


async def _plan(
    sessions: Sessions, tenant_id: UUID, include_filling_models: bool
) -> tuple[dict[IndexedScope, int], Sequence[str]]:
    """The scopes to index, with the dimensions of their vectors, and the names of the indexes to
    drop.
    """
    async with sessions.for_tenant(tenant_id) as session:
        sizes = await count_indexed(session)
        connection = await asyncpg_connection(session)
        rows = await connection.fetch(LIST_INDEXES, f"hansei_hnsw_{tenant_id.hex}_")
        is_valid_by_name: dict[str, bool] = {row["relname"]: row["valid"] for row in rows}
        models = await list_indexed_models(
            session, [scope_id for scope_id, size in sizes.items() if size >= DROP_BELOW_ROWS]
        )
        left_out: set[int] = set()
        if not include_filling_models:
            embedding_models = await list_embedding_models(session)
            filling = [
                ("model", model.label) for model in embedding_models if model.state == "filling"
            ]
            left_out = set((await find_labels(session, filling)).values())
    scope_by_index_name = {
        IndexedScope(tenant_id, scope, model).index: IndexedScope(tenant_id, scope, model)
        for scope, model in models
    }
    obsolete = [
        name
        for name, is_valid in is_valid_by_name.items()
        if not is_valid or name not in scope_by_index_name
    ]
    missing = {
        scope: models[scope.scope_id, scope.model_label_id]
        for name, scope in scope_by_index_name.items()
        if sizes[scope.scope_id] >= CREATE_ABOVE_ROWS
        and is_valid_by_name.get(name) is not True
        and scope.model_label_id not in left_out
    }
    return missing, obsolete
