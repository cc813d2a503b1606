"""Vectors of another model for all that a tenant serves, made beside those that are there; and old
ones taken away. Every batch is a transaction of its own, so both can be killed and begun again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import structlog

from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.embeddings.queries import forget_retired, list_models
from apps.memory_api.memory.models import (
    Pass,
    drop_batch,
    fill,
    find_missing,
    find_old_models,
    number_of,
    sizes_of,
)
from apps.memory_api.runtime import Runtime

log = structlog.get_logger()

BATCH = 200
"""Memories embedded at once."""
DROPPED = 2_000
"""Vectors deleted in one transaction."""
GRACE = timedelta(minutes=3)
"""How long after a flip the vectors of the model before are kept: longer than a process may still
believe in it, its slowest embedding included."""

Told = Callable[[int], Awaitable[None]]
"""Called after each batch with the number of memories it gave a vector."""


async def _nobody(_filled: int) -> None:
    """The default: nobody is told."""


async def backfill(
    runtime: Runtime,
    tenant_id: UUID,
    source: int,
    embedder: Embedder,
    tell: Told = _nobody,
) -> int:
    """One pass over everything with a vector of the model numbered `source` and none of
    `embedder`'s. Answers how many were missing; 0 means there is nothing left to do. Raises
    EmbedderFailed.
    """
    async with runtime.sessions.tenant(tenant_id) as session:
        target = await number_of(session, embedder.model)
        scopes = await sizes_of(session, source)
    missing = 0
    for scope in scopes:
        where = Pass(scope, source, target)
        missing += await _backfill_scope(runtime, tenant_id, where, embedder, tell)
    return missing


async def _backfill_scope(
    runtime: Runtime, tenant_id: UUID, where: Pass, embedder: Embedder, tell: Told
) -> int:
    missing, after = 0, 0
    while True:
        async with runtime.sessions.tenant(tenant_id) as session:
            rows = await find_missing(session, where, after, BATCH)
        if not rows:
            return missing
        vectors = await embedder.embed_documents([row.text for row in rows])
        async with runtime.sessions.tenant(tenant_id) as session:
            filled = await fill(session, where, rows, vectors)
        await tell(filled)
        missing, after = missing + len(rows), rows[-1].n


async def clear_old(runtime: Runtime, tenant_id: UUID, *, grace: timedelta = GRACE) -> int:
    """Take away the vectors of models that nobody can be asking for any more. What was written at
    the last moment under the old model alone gets its vector first. Answers how many went.
    """
    async with runtime.sessions.tenant(tenant_id) as session:
        old = await find_old_models(session, grace)
    gone = 0
    for number, label in old.items():
        embedder = await runtime.embedder_of(tenant_id)
        await backfill(runtime, tenant_id, number, embedder)
        gone += await _drop(runtime, tenant_id, number, label)
    async with runtime.sessions.tenant(tenant_id) as session:
        left = await find_old_models(session, grace)
        await forget_retired(session, grace, list(left.values()))
    if gone:
        log.info("old_vectors_dropped", tenant_id=str(tenant_id), models=[*old.values()], many=gone)
    return gone


async def _drop(runtime: Runtime, tenant_id: UUID, number: int, label: str) -> int:
    async with runtime.sessions.tenant(tenant_id) as session:
        scopes = await sizes_of(session, number)
    gone = 0
    for scope in scopes:
        after: int | None = 0
        while after is not None:
            async with runtime.sessions.tenant(tenant_id) as session:
                # locked: nobody makes this model the one to move to meanwhile
                states = {m.label: m.state for m in await list_models(session, lock=True)}
                kept = next((name for name, state in states.items() if state == "active"), None)
                if kept is None or states.get(label, "retiring") != "retiring":
                    return gone
                where = Pass(scope, number, await number_of(session, kept))
                dropped = await drop_batch(session, where, after, DROPPED)
            gone += len(dropped)
            after = max(dropped) if len(dropped) == DROPPED else None
    return gone
