"""Upkeep of vector indexes: a scope that serves many rows gets one of its own, and loses it again.

Only the owner of the tables can make an index, and only outside a transaction, so this is the one
job that connects by `HANSEI_OWNER_URL`. Without it every search is exact
(docs/decisions/search.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import structlog

from apps.memory_api.core.db import Sessions, raw_connection
from apps.memory_api.embeddings.queries import list_models
from apps.memory_api.memory.queries import count_served, served_models
from apps.memory_api.memory.scopes import find_labels

log = structlog.get_logger()

MANY = 50_000
"""Rows from which a scope has an index."""
FEW = 25_000
"""Rows below which it loses it: far from MANY, so that no scope goes back and forth."""
PAUSE = 1.0
"""Seconds between two looks at an index that another process makes."""
BUSY = "select pg_try_advisory_lock(hashtextextended('hansei.vector_index', 0))"
MAKE = (
    "create index concurrently {name} on memory_vectors"
    " using hnsw ((emb::halfvec({dimensions})) halfvec_ip_ops) with (m = 16, ef_construction = 64)"
    " where tenant_id = '{tenant}' and scope = {scope} and model = {model}"
)

THERE = (
    "select c.relname, x.indisvalid and x.indisready valid"
    " from pg_class c join pg_index x on x.indexrelid = c.oid"
    " where x.indrelid = 'memory_vectors'::regclass and starts_with(c.relname, $1)"
)


@dataclass(frozen=True)
class Scope:
    """What one index covers."""

    tenant_id: UUID
    scope: int
    model: int

    @property
    def index(self) -> str:
        """The name by which `hansei_search` looks for it."""
        return f"hansei_hnsw_{self.tenant_id.hex}_{self.scope}_{self.model}"


async def keep_indexes(
    sessions: Sessions, owner_url: str | None, tenant_id: UUID, *, moving: bool = False
) -> dict[str, list[str]]:
    """Make and drop the vector indexes of a tenant; answers the names of both. A model that is
    being filled has none until it is about to be searched (`moving`): filling is faster so.
    """
    done: dict[str, list[str]] = {"made": [], "dropped": []}
    if owner_url is None or not await _due(sessions, tenant_id, moving=moving):
        return done
    owner = await asyncpg.connect(owner_url)
    try:
        if not await owner.fetchval(BUSY):  # an index that is being made looks like a failed one
            return done
        wanted, gone = await _plan(sessions, tenant_id, moving=moving)
        for name in gone:
            await drop_index(owner, name)
            done["dropped"].append(name)
        for scope, dimensions in wanted.items():
            done["made"].append(await make_index(owner, scope, dimensions))
    finally:
        await owner.close()
    if done["made"] or done["dropped"]:
        log.info("vector_indexes_kept", tenant_id=str(tenant_id), **done)
    return done


async def missing_indexes(sessions: Sessions, tenant_id: UUID) -> Sequence[Scope]:
    """The large scopes of a tenant that have no vector index yet."""
    wanted, _ = await _plan(sessions, tenant_id, moving=False)
    return list(wanted)


async def have_indexes(sessions: Sessions, owner_url: str | None, tenant_id: UUID) -> None:
    """Make the indexes of a tenant, those of the model it moves to included, and wait for any that
    another process makes. Without the owner's URL there is nothing to wait for.
    """
    while owner_url is not None and await _due(sessions, tenant_id, moving=True):
        made = await keep_indexes(sessions, owner_url, tenant_id, moving=True)
        if not any(made.values()):
            await asyncio.sleep(PAUSE)


async def make_index(owner: asyncpg.Connection[Any], scope: Scope, dimensions: int) -> str:
    """Make the index of a scope while it is read and written. Answers its name."""
    await owner.execute("set maintenance_work_mem = '512MB'")
    await owner.execute(
        MAKE.format(
            name=scope.index,
            dimensions=int(dimensions),
            tenant=UUID(str(scope.tenant_id)),
            scope=int(scope.scope),
            model=int(scope.model),
        )
    )
    return scope.index


async def drop_index(owner: asyncpg.Connection[Any], name: str) -> None:
    quoted = await owner.fetchval("select quote_ident($1)", name)
    await owner.execute(f"drop index concurrently if exists {quoted}")


async def _due(sessions: Sessions, tenant_id: UUID, *, moving: bool) -> bool:
    wanted, gone = await _plan(sessions, tenant_id, moving=moving)
    return bool(wanted or gone)


async def _plan(
    sessions: Sessions, tenant_id: UUID, *, moving: bool
) -> tuple[dict[Scope, int], Sequence[str]]:
    """The indexes to make, with their dimensions, and the names of those to drop."""
    async with sessions.tenant(tenant_id) as session:
        sizes = await count_served(session)
        driver = await raw_connection(session)
        rows = await driver.fetch(THERE, f"hansei_hnsw_{tenant_id.hex}_")
        there: dict[str, bool] = {row["relname"]: row["valid"] for row in rows}
        models = await served_models(session, [s for s, size in sizes.items() if size >= FEW])
        labels = [("model", m.label) for m in await list_models(session) if m.state == "filling"]
        filling = set((await find_labels(session, labels)).values()) if not moving else set[int]()
    kept = {
        Scope(tenant_id, scope, model).index: Scope(tenant_id, scope, model)
        for scope, model in models
    }
    gone = [name for name, valid in there.items() if not valid or name not in kept]
    wanted = {
        scope: models[scope.scope, scope.model]
        for name, scope in kept.items()
        if sizes[scope.scope] >= MANY and there.get(name) is not True and scope.model not in filling
    }
    return wanted, gone
