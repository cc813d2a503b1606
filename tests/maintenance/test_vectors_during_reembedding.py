"""Which vectors exist during and after a move to another embedding model."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from sqlalchemy import select, update

from memory_api.embeddings.registry import EmbedderSpec
from memory_api.embeddings.tables import EmbeddingModelRow
from memory_api.maintenance import reindexing, vector_indexes
from memory_api.maintenance.reindexing import delete_old_vectors
from memory_api.maintenance.upkeep import delete_retired_vectors
from memory_api.memories.editing import delete_memory, update_memory
from memory_api.memories.index.reindex import (
    BackfillRange,
    count_vectors,
    delete_vectors,
    find_missing_vectors,
    model_label_id,
    store_vectors,
)
from memory_api.memories.schemas import UpdateMemoryRequest
from memory_api.memories.tables import MemoryRow
from memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant
from tests.support.reembedding import (
    NEW,
    OLD,
    Mover,
    find,
    insight_drafts,
    other_process,
    store_drafts,
    vector_counts,
)
from tests.support.stub_provider import StubProvider, server_error

NOW = timedelta(0)

pytestmark = pytest.mark.usefixtures("closed_processes")


@pytest.mark.parametrize("what", ["change", "remove"])
async def test_memory_changed_during_embedding_gets_no_stale_vector(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec, what: str
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(2))
    await mover.start(spec)
    embedder = await mover.runtime.embedding_models.embedder_cache.open(spec)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        source, target = await model_label_id(session, OLD), await model_label_id(session, NEW)
        memory = await session.scalar(
            select(MemoryRow)
            .where(MemoryRow.tenant_id == tenant.id)
            .order_by(MemoryRow.seq)
            .limit(1)
        )
        assert memory is not None
        where = BackfillRange(memory.scope_id, source, target)
        rows = await find_missing_vectors(session, where, 0, 10)
    assert [row.seq for row in rows] == sorted(row.seq for row in rows)
    made = await embedder.embed_documents([row.text for row in rows])
    late = other_process(runtime, seconds=60)
    vars(late)["embedding_models"] = (
        runtime.embedding_models
    )  # a process that has not noticed the move
    if what == "change":
        await update_memory(
            late, tenant.id, memory.id, UpdateMemoryRequest(content="It says more now"), "me"
        )
    else:
        await delete_memory(late, tenant.id, memory.id, "me")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await store_vectors(session, where, rows, made) == 1
        missing = await find_missing_vectors(session, where, 0, 10)
    assert [row.text for row in missing] == (["It says more now"] if what == "change" else [])
    assert await reindexing.backfill_vectors(mover.runtime, tenant.id, source, embedder) == len(
        missing
    )


async def test_batch_of_old_vectors_has_limited_size(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec
) -> None:
    """With any plan that the database chooses for tables without statistics."""
    await store_drafts(runtime, tenant.id, insight_drafts(300))
    await mover.move(spec)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        old, new = await model_label_id(session, OLD), await model_label_id(session, NEW)
        (scope,) = await count_vectors(session, old)
        dropped = await delete_vectors(session, BackfillRange(scope, old, new), 0, 7)
        assert len(dropped) == 7
        rest = await delete_vectors(session, BackfillRange(scope, old, new), max(dropped), 1000)
        assert len(rest) == 293


async def test_memory_written_at_switch_is_not_lost(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec
) -> None:
    """A process that was suspended for minutes writes vectors of the old model only."""
    frozen = other_process(runtime, "frozen", seconds=600)
    await store_drafts(frozen, tenant.id, insight_drafts(3))
    await mover.move(spec)
    await store_drafts(frozen, tenant.id, insight_drafts(1, start=77))
    assert await vector_counts(runtime, tenant.id) == {OLD: 4, NEW: 3}
    await delete_old_vectors(mover.runtime, tenant.id, grace=NOW)
    assert await vector_counts(runtime, tenant.id) == {NEW: 4}
    await store_drafts(frozen, tenant.id, insight_drafts(1, start=78))
    await delete_old_vectors(mover.runtime, tenant.id)
    assert await vector_counts(runtime, tenant.id) == {NEW: 5}, (
        "also after the row of the old model is deleted"
    )
    assert "page78" in (await find(mover.runtime, tenant.id, "page78"))[0].memory.content


async def test_upkeep_continues_when_embedder_is_unavailable(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec, stub: StubProvider
) -> None:
    frozen = other_process(runtime, "frozen", seconds=600)
    await store_drafts(frozen, tenant.id, insight_drafts(3))
    await mover.move(spec)
    await store_drafts(frozen, tenant.id, insight_drafts(1, start=77))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(
            update(EmbeddingModelRow)
            .where(EmbeddingModelRow.tenant_id == tenant.id, EmbeddingModelRow.label == OLD)
            .values(state_since=datetime.now(UTC) - timedelta(hours=1))
        )
    stub.behave = lambda _call: server_error(401)
    result = await delete_retired_vectors(mover.runtime, tenant.id)
    assert result["vectors_deleted"] == 0
    assert "embed-b" in result["vectors_error"]
    assert await vector_counts(runtime, tenant.id) == {OLD: 4, NEW: 3}
    stub.clear()
    assert await delete_retired_vectors(mover.runtime, tenant.id) == {"vectors_deleted": 4}


async def test_old_vectors_are_kept_after_switch(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(3))
    await mover.move(spec)
    assert await delete_old_vectors(mover.runtime, tenant.id) == 0
    assert await vector_counts(runtime, tenant.id) == {OLD: 3, NEW: 3}


async def test_large_scope_has_vector_index_before_switch(
    runtime: Runtime,
    tenant: TestTenant,
    spec: EmbedderSpec,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vector_indexes, "CREATE_ABOVE_ROWS", 40)
    monkeypatch.setattr(vector_indexes, "DROP_BELOW_ROWS", 20)
    owner_url = database.url("hansei_owner")
    settings = runtime.settings.model_copy(update={"owner_url": owner_url})
    owning = other_process(replace(runtime, settings=settings), "owning")
    mover = Mover(owning, tenant.id)
    await store_drafts(runtime, tenant.id, insight_drafts(50))
    run = await mover.start(spec)
    synced = await vector_indexes.sync_vector_indexes(runtime.sessions, owner_url, tenant.id)
    assert len(synced["created"]) == 1, "the new model has no index while it is being filled"
    await mover.execute(run)
    assert len(await indexes_of(database, tenant)) == 2
    await delete_old_vectors(owning, tenant.id, grace=NOW)
    await vector_indexes.sync_vector_indexes(runtime.sessions, owner_url, tenant.id)
    (left,) = await indexes_of(database, tenant)
    assert left not in synced["created"]
    assert "page7 " in (await find(mover.runtime, tenant.id, "page7"))[0].memory.content
    monkeypatch.setattr(vector_indexes, "DROP_BELOW_ROWS", 1000)
    await vector_indexes.sync_vector_indexes(runtime.sessions, owner_url, tenant.id)


async def indexes_of(database: Database, tenant: TestTenant) -> list[str]:
    connection = await asyncpg.connect(database.url("hansei_owner"))
    try:
        rows = await connection.fetch(
            "select relname from pg_class where starts_with(relname, $1)",
            f"hansei_hnsw_{tenant.id.hex}_",
        )
    finally:
        await connection.close()
    return [row["relname"] for row in rows]
