"""Give old memories new vectors or terms, in batches, while search continues.

Every batch is a transaction of its own, so the work can be interrupted and repeated. A memory's
`tokenizer` says which tokenizer indexed it. Memories indexed by a newer release stay unchanged, so
that two releases can run side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import UUID

import structlog

from memory_api.embeddings.port import Embedder
from memory_api.embeddings.queries import delete_retired_models, list_embedding_models
from memory_api.memories.index.drafts import top_terms
from memory_api.memories.index.reindex import (
    BackfillRange,
    IndexedMemory,
    count_vectors,
    delete_vectors,
    find_indexed,
    find_missing_vectors,
    find_tokenizers,
    find_unused_models,
    model_label_id,
    replace_terms,
    store_vectors,
)
from memory_api.runtime import Runtime
from memory_api.text.terms import TOKENIZER_VERSION, document_weights

log = structlog.get_logger()

VECTORS_PER_BATCH = 200
VECTORS_PER_DELETION = 2_000
RETIRED_VECTOR_GRACE = timedelta(minutes=3)
"""How long the vectors of a retired model stay: longer than any process may cache the model and
search with it.
"""

OnProgress = Callable[[int], Awaitable[None]]
"""Called after each batch with the number of vectors that it stored."""


async def _ignore_progress(_filled: int) -> None: ...


async def backfill_vectors(
    runtime: Runtime,
    tenant_id: UUID,
    source: int,
    embedder: Embedder,
    on_progress: OnProgress = _ignore_progress,
) -> int:
    """One pass over all memories with a vector of the model `source` and none of `embedder`'s.

    Returns how many vectors were missing; 0 means that the work is complete. Raises
    EmbedderUnavailable.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        target = await model_label_id(session, embedder.model)
        scopes = await count_vectors(session, source)
    missing = 0
    for scope in scopes:
        backfill_range = BackfillRange(scope, source, target)
        missing += await _backfill_scope(runtime, tenant_id, backfill_range, embedder, on_progress)
    return missing


async def _backfill_scope(
    runtime: Runtime,
    tenant_id: UUID,
    backfill_range: BackfillRange,
    embedder: Embedder,
    on_progress: OnProgress,
) -> int:
    missing, after = 0, 0
    while True:
        async with runtime.sessions.for_tenant(tenant_id) as session:
            rows = await find_missing_vectors(session, backfill_range, after, VECTORS_PER_BATCH)
        if not rows:
            return missing
        vectors = await embedder.embed_documents([row.text for row in rows])
        async with runtime.sessions.for_tenant(tenant_id) as session:
            filled = await store_vectors(session, backfill_range, rows, vectors)
        await on_progress(filled)
        missing, after = missing + len(rows), rows[-1].seq


async def delete_old_vectors(
    runtime: Runtime, tenant_id: UUID, *, grace: timedelta = RETIRED_VECTOR_GRACE
) -> int:
    """Deletes the vectors of models that no process searches any more. Returns their number.

    First backfills memories that have only a vector of an old model.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        old_models = await find_unused_models(session, grace)
    deleted_count = 0
    for model_id, label in old_models.items():
        embedder = await runtime.get_tenant_embedder(tenant_id)
        await backfill_vectors(runtime, tenant_id, model_id, embedder)
        deleted_count += await _delete_vectors_of(runtime, tenant_id, model_id, label)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        deletable = await find_unused_models(session, grace)
        await delete_retired_models(session, grace, list(deletable.values()))
    if deleted_count:
        log.info(
            "old_vectors_deleted",
            tenant_id=str(tenant_id),
            models=[*old_models.values()],
            vector_count=deleted_count,
        )
    return deleted_count


async def _delete_vectors_of(runtime: Runtime, tenant_id: UUID, model_id: int, label: str) -> int:
    async with runtime.sessions.for_tenant(tenant_id) as session:
        scopes = await count_vectors(session, model_id)
    deleted_count = 0
    for scope in scopes:
        after: int | None = 0
        while after is not None:
            async with runtime.sessions.for_tenant(tenant_id) as session:
                # The lock prevents a concurrent move to this model.
                states = {
                    model.label: model.state
                    for model in await list_embedding_models(session, lock=True)
                }
                active_label = next(
                    (name for name, state in states.items() if state == "active"), None
                )
                if active_label is None or states.get(label, "retiring") != "retiring":
                    return deleted_count
                backfill_range = BackfillRange(
                    scope, model_id, await model_label_id(session, active_label)
                )
                deleted = await delete_vectors(session, backfill_range, after, VECTORS_PER_DELETION)
            deleted_count += len(deleted)
            after = max(deleted) if len(deleted) == VECTORS_PER_DELETION else None
    return deleted_count


MEMORIES_PER_BATCH = 500
MAX_BATCHES_PER_ROUND = 100
"""Upkeep continues in its next round."""


async def retokenize_tenant(runtime: Runtime, tenant_id: UUID) -> int:
    """Indexes memories again that an older tokenizer indexed. Returns their number."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        outdated = [
            tokenizer for tokenizer in await find_tokenizers(session) if is_outdated(tokenizer)
        ]
    memory_count = 0
    for tokenizer in outdated:
        for _ in range(MAX_BATCHES_PER_ROUND):
            async with runtime.sessions.for_tenant(tenant_id) as session:
                rows = await find_indexed(session, tokenizer, MEMORIES_PER_BATCH)
            if not rows:
                break
            weights = await asyncio.to_thread(_weigh_terms, rows)
            async with runtime.sessions.for_tenant(tenant_id) as session:
                memory_count += await replace_terms(
                    session, tokenizer, TOKENIZER_VERSION, rows, weights
                )
    if memory_count:
        log.info(
            "memories_retokenized",
            tenant_id=str(tenant_id),
            memory_count=memory_count,
            tokenizer=TOKENIZER_VERSION,
        )
    return memory_count


def is_outdated(tokenizer: str, current: str = TOKENIZER_VERSION) -> bool:
    """Whether memories indexed by `tokenizer` must be indexed again: unless it is `current` or a
    later version of the same tokenizer.
    """
    name, _, version = tokenizer.rpartition("/")
    current_name, _, current_version = current.rpartition("/")
    if tokenizer == current:
        return False
    return name != current_name or not version.isdecimal() or int(version) < int(current_version)


def _weigh_terms(rows: Sequence[IndexedMemory]) -> dict[int, dict[int, float]]:
    return {row.seq: top_terms(document_weights(row.text)) for row in rows}
