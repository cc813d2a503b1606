"""Every change of what a memory says is one revision; votes and vectors are none."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import DBAPIError

from memory_api.memories.queries import list_revisions
from memory_api.memories.tables import MemoryRow
from tests.support.reference_search import drafts, write

AUDITED = {
    "content": "Other words",
    "title": "A title",
    "when_to_use": "When it rains",
    "tags": ["new"],
    "importance": 0.9,
    "status": "archived",
    "pinned": True,
}
NOT_AUDITED = {
    "helpful": 3,
    "harmful": 1,
    "neutral": 2,
    "observation_count": 5,
    "usefulness": 0.7,
    "confidence": 0.3,
    "metadata_": {"seen": 1},
    "terms": [1, 2],
}


async def history(runtime, tenant, memory_id) -> list:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        return list(await list_revisions(session, UUID(str(memory_id))))


@pytest.fixture
async def memory(runtime, tenant) -> UUID:
    items = await write(runtime, tenant.id, drafts(1))
    return items[0].draft.id


async def set_columns(runtime, tenant, memory_id, **values) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(
            update(MemoryRow)
            .where(MemoryRow.tenant_id == tenant.id, MemoryRow.id == memory_id)
            .values(**values)
        )


@pytest.mark.parametrize("column", [*AUDITED, "section", "key"])
async def test_change_makes_one_revision_with_reason(
    runtime, tenant, memory: UUID, column: str
) -> None:
    run_id = uuid4()
    why = {"change_reason": "clearer", "change_actor": "me", "change_run_id": run_id}
    value = AUDITED.get(column, "another")
    await set_columns(runtime, tenant, memory, **{column: value}, **why)
    revisions = await history(runtime, tenant, memory)
    assert [revision.revision for revision in revisions] == [1, 2]
    last = revisions[-1]
    assert getattr(last, column) == value
    assert (last.change_reason, last.change_actor, last.change_run_id) == ("clearer", "me", run_id)
    await set_columns(runtime, tenant, memory, **{column: value}, **why)
    assert len(await history(runtime, tenant, memory)) == 2, "the same again is no change"


@pytest.mark.parametrize("column", NOT_AUDITED)
async def test_counters_and_vectors_make_no_revision(
    runtime, tenant, memory: UUID, column: str
) -> None:
    await set_columns(runtime, tenant, memory, **{column: NOT_AUDITED[column]})
    assert [r.revision for r in await history(runtime, tenant, memory)] == [1]


async def test_revision_number_cannot_be_set(runtime, tenant, memory: UUID) -> None:
    await set_columns(runtime, tenant, memory, content="Mine", revision=17)
    assert [r.revision for r in await history(runtime, tenant, memory)] == [1, 2]


async def test_history_api_lists_revisions_in_order(api, runtime, tenant) -> None:
    made = (await api.post("/api/v1/memories", json={"content": "one", "reason": "new"})).json()
    path = f"/api/v1/memories/{made['id']}"
    await api.patch(path, json={"content": "two", "reason": "better"})
    await api.patch(path, json={"tags": ["t"], "importance": 0.8})
    await api.delete(path)
    revisions = await history(runtime, tenant, made["id"])
    assert [(r.revision, r.content, r.status, r.change_reason) for r in revisions] == [
        (1, "one", "active", "new"),
        (2, "two", "active", "better"),
        (3, "two", "active", None),
        (4, "two", "deleted", None),
    ]
    assert {r.change_actor.split(":")[0] for r in revisions} == {"key"}


@pytest.mark.parametrize(
    "statement",
    [
        "update memory_revisions set content = 'never said'",
        "delete from memory_revisions",
        "insert into memory_revisions (tenant_id, memory_id, revision, scope_id, content,"
        " importance, status, pinned) values (:tenant, :tenant, 1, 1, 'x', 0, 'active', false)",
        "delete from memories",
    ],
)
async def test_history_cannot_be_rewritten(runtime, tenant, memory: UUID, statement: str) -> None:
    async def rewrite() -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            values = {"tenant": tenant.id} if ":tenant" in statement else {}
            await session.execute(text(statement), values)

    with pytest.raises(DBAPIError, match="permission denied"):
        await rewrite()


async def test_change_that_is_rolled_back_leaves_no_revision(runtime, tenant, memory: UUID) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        nested = await session.begin_nested()
        await session.execute(
            update(MemoryRow)
            .where(MemoryRow.tenant_id == tenant.id, MemoryRow.id == memory)
            .values(content="Not meant")
        )
        await nested.rollback()
    assert [r.revision for r in await history(runtime, tenant, memory)] == [1]


async def test_memory_equals_its_last_revision(runtime, tenant) -> None:
    await write(runtime, tenant.id, drafts(20, seed=3))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        memories = list(
            await session.scalars(select(MemoryRow).where(MemoryRow.tenant_id == tenant.id))
        )
    for memory in memories[:10]:
        await set_columns(runtime, tenant, memory.id, content=f"again {memory.seq}")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for memory in await session.scalars(
            select(MemoryRow).where(MemoryRow.tenant_id == tenant.id)
        ):
            last = (await list_revisions(session, memory.id))[-1]
            for column in (*AUDITED, "section", "key", "revision", "scope_id"):
                assert getattr(last, column) == getattr(memory, column)
