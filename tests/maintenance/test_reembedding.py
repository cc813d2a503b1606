"""A tenant moves to another embedding model while it is searched, written and changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from memory_api.core.errors import Conflict
from memory_api.embeddings.port import EmbedderUnavailable
from memory_api.embeddings.registry import EmbedderSpec
from memory_api.embeddings.tables import EmbeddingModelRow
from memory_api.maintenance import reembedding, reindexing
from memory_api.maintenance.reindexing import delete_old_vectors
from memory_api.memories.tables import LabelRow
from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.queries import get_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.conftest import TestTenant
from tests.support.reembedding import (
    CACHE_SECONDS,
    NEW,
    OLD,
    Mover,
    close_all,
    find,
    insight_drafts,
    model_states,
    other_process,
    store_drafts,
    vector_counts,
)
from tests.support.stub_provider import StubProvider, answer, server_error

NOW = timedelta(0)

pytestmark = pytest.mark.usefixtures("closed_processes")


async def test_searches_and_writes_go_on_during_a_move(
    runtime: Runtime,
    tenant: TestTenant,
    mover: Mover,
    spec: EmbedderSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two other processes search and write continuously: every search finds what was just written,
    before, during and after the switch."""
    await store_drafts(runtime, tenant.id, insight_drafts(450))
    others = [other_process(runtime, "a"), other_process(runtime, "b")]
    stop = asyncio.Event()
    rounds = [0, 0]

    async def use(number: int, other: Runtime) -> None:
        while not stop.is_set():
            n = 1000 * (number + 1) + rounds[number]
            await store_drafts(other, tenant.id, insight_drafts(1, start=n))
            hits = await find(other, tenant.id, f"page{n}")
            assert f"page{n} " in hits[0].memory.content
            known = rounds[number] % 450
            hits = await find(other, tenant.id, f"page{known}")
            assert f"page{known} " in hits[0].memory.content
            rounds[number] += 1

    users = [asyncio.create_task(use(n, other)) for n, other in enumerate(others)]
    await mover.move(spec)
    at_switch = list(rounds)
    while any(now < before + 20 for now, before in zip(rounds, at_switch, strict=True)):
        await asyncio.gather(*(u for u in users if u.done()))  # a failure ends the wait
        await asyncio.sleep(0.02)
    await asyncio.sleep(2 * CACHE_SECONDS)
    stop.set()
    await asyncio.gather(*users)

    written = 450 + sum(rounds)
    assert await model_states(runtime, tenant.id) == {OLD: "retiring", NEW: "active"}
    assert (await vector_counts(runtime, tenant.id))[NEW] == written
    monkeypatch.setattr(reindexing, "VECTORS_PER_DELETION", 100)
    assert await delete_old_vectors(mover.runtime, tenant.id, grace=NOW) > 450
    assert await vector_counts(runtime, tenant.id) == {NEW: written}
    assert await model_states(runtime, tenant.id) == {NEW: "active"}
    hits = await find(others[0], tenant.id, "Lesson 7: retry page7 with cursor")
    assert hits[0].cosine == pytest.approx(1, abs=1e-3), "by vectors of the new model"


def watch_progress(
    monkeypatch: pytest.MonkeyPatch, on_progress: Callable[[int, int], None]
) -> None:
    """Call `on_progress` whenever a move stores its progress."""
    update_progress = reembedding.update_progress

    async def update(session: Any, run: Any, progress: dict[str, Any]) -> bool:
        on_progress(progress["done"], progress["total"])
        return await update_progress(session, run, progress)

    monkeypatch.setattr(reembedding, "update_progress", update)


async def test_run_reports_progress_and_result(
    runtime: Runtime,
    tenant: TestTenant,
    mover: Mover,
    spec: EmbedderSpec,
    api: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(250))
    reported: list[tuple[int, int]] = []
    watch_progress(monkeypatch, lambda done, total: reported.append((done, total)))
    run = await mover.start(spec)
    await mover.execute(run)
    assert reported[0] == (0, 250)
    assert (200, 250) in reported
    assert reported[-1] == (250, 250)
    seen = (await api.get(f"/api/v1/runs/{run.id}")).json()
    assert (seen["kind"], seen["state"]) == ("reembed", "done")
    assert seen["result"] == {"from": OLD, "to": NEW, "done": 250, "total": 250}


async def test_tenant_without_memories_moves_at_once(
    tenant: TestTenant, mover: Mover, spec: EmbedderSpec
) -> None:
    await mover.move(spec)
    assert await model_states(mover.runtime, tenant.id) == {OLD: "retiring", NEW: "active"}
    assert await reembedding.start_reembedding(mover.runtime, tenant.id, spec) is None


async def test_same_model_at_other_address_needs_no_move(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec, stub: StubProvider
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(2))
    await mover.move(spec)
    with StubProvider() as elsewhere:
        moved = replace(spec, base_url=elsewhere.openai_url)
        assert await reembedding.start_reembedding(mover.runtime, tenant.id, moved) is None
        asked = len(stub.calls)
        await find(other_process(runtime), tenant.id, "page1")
        assert (len(stub.calls), len(elsewhere.calls)) == (asked, 2)
        await close_all()


async def test_unloadable_model_can_be_replaced(
    runtime: Runtime, tenant: TestTenant, mover: Mover
) -> None:
    """As after an upgrade to a release with another bundled model."""
    await store_drafts(runtime, tenant.id, insight_drafts(3))
    missing = "static-minilm-256/0"
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for table, name in (
            (LabelRow, LabelRow.name),
            (EmbeddingModelRow, EmbeddingModelRow.label),
        ):
            await session.execute(
                update(table)
                .where(table.tenant_id == tenant.id, name == OLD)
                .values({name.key: missing})
            )
    with pytest.raises(EmbedderUnavailable, match="hansei reembed"):
        await find(other_process(runtime), tenant.id, "page1")
    await mover.move(EmbedderSpec("static"))
    assert "page1 " in (await find(other_process(runtime), tenant.id, "page1"))[0].memory.content
    assert await model_states(runtime, tenant.id) == {missing: "retiring", OLD: "active"}


async def test_move_and_move_back(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec
) -> None:
    """On the way back, the old vectors still exist; only memories written since then lack one."""
    await store_drafts(runtime, tenant.id, insight_drafts(3))
    await mover.move(spec)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        # the old model gets no more vectors
        long_ago = datetime.now(UTC) - timedelta(minutes=1)
        await session.execute(
            update(EmbeddingModelRow)
            .where(EmbeddingModelRow.tenant_id == tenant.id, EmbeddingModelRow.label == OLD)
            .values(state_since=long_ago)
        )
    mover.runtime.embedding_models.invalidate(tenant.id)
    await store_drafts(mover.runtime, tenant.id, insight_drafts(2, start=10))
    assert await vector_counts(runtime, tenant.id) == {OLD: 3, NEW: 5}
    await mover.move(EmbedderSpec("static"))
    assert await vector_counts(runtime, tenant.id) == {OLD: 5, NEW: 5}
    assert await model_states(runtime, tenant.id) == {OLD: "active", NEW: "retiring"}


async def test_only_one_move_at_a_time_and_cancellable(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec, stub: StubProvider
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(3))
    run = await mover.start(spec)
    again = await mover.start(spec)
    assert again.id == run.id, "the same move continues"
    with pytest.raises(Conflict, match="embed-b"):
        await mover.start(EmbedderSpec("openai", "embed-c", 32, stub.openai_url))
    assert await reembedding.cancel_reembedding(mover.runtime, tenant.id) == NEW
    assert await reembedding.cancel_reembedding(mover.runtime, tenant.id) is None
    async with runtime.sessions.for_tenant(tenant.id) as session:
        ended = await get_run(session, run.id)
    assert ended is not None
    assert (ended.state, ended.error["type"]) == ("failed", "Cancelled")
    await delete_old_vectors(mover.runtime, tenant.id, grace=NOW)
    assert await model_states(runtime, tenant.id) == {OLD: "active"}
    await mover.move(EmbedderSpec("openai", "embed-c", 32, stub.openai_url))


async def test_cancelled_move_stops_while_running(
    runtime: Runtime,
    tenant: TestTenant,
    mover: Mover,
    spec: EmbedderSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(250))
    run = await mover.start(spec)
    stopped = asyncio.Event()

    def stop(done: int, _total: int) -> None:
        if done and not stopped.is_set():
            stopped.set()

    async def cancel() -> None:
        await stopped.wait()
        await reembedding.cancel_reembedding(other_process(runtime), tenant.id)

    cancelling = asyncio.create_task(cancel())
    watch_progress(monkeypatch, stop)
    with pytest.raises(lifecycle.LeaseLost):
        await mover.execute(run, grace=timedelta(seconds=30))
    await cancelling
    assert (await model_states(runtime, tenant.id))[OLD] == "active"


async def test_unreachable_model_is_refused_before_any_change(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec, stub: StubProvider
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(1))
    stub.behave = lambda _call: server_error(401)
    with pytest.raises(EmbedderUnavailable):
        await mover.start(spec)
    with pytest.raises(ValueError, match="Unknown embedding provider"):
        await mover.start(EmbedderSpec("nobody"))
    assert await model_states(runtime, tenant.id) == {OLD: "active"}


async def test_failing_provider_blocks_no_writer_and_run_continues_later(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec, stub: StubProvider
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(250))
    run = await mover.start(spec)
    stub.behave = lambda call: server_error(401) if len(call.body["input"]) < 60 else answer("")
    with pytest.raises(EmbedderUnavailable):
        await mover.execute(run)
    assert await vector_counts(runtime, tenant.id) == {OLD: 250, NEW: 200}
    writer = other_process(runtime)
    await store_drafts(writer, tenant.id, insight_drafts(1, start=900))
    asked = len(stub.calls)
    await store_drafts(writer, tenant.id, insight_drafts(1, start=901))
    assert len(stub.calls) == asked, "no request for a while after a failure"
    assert (await vector_counts(runtime, tenant.id))[OLD] == 252
    async with runtime.sessions.for_tenant(tenant.id) as session:
        row = await session.get(RunRow, (tenant.id, run.id))
        await lifecycle.record_failure(session, row, EmbedderUnavailable("scripted"))
    stub.clear()
    await mover.execute(run)
    assert (await vector_counts(runtime, tenant.id))[NEW] == 252


async def test_worker_continues_interrupted_command(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: EmbedderSpec
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(20))
    run = await mover.start(spec)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(
            update(EmbeddingModelRow)
            .where(EmbeddingModelRow.tenant_id == tenant.id, EmbeddingModelRow.state == "filling")
            .values(state_since=datetime.now(UTC) - timedelta(minutes=1))
        )
    assert await process_ticket(other_process(runtime), Ticket(tenant.id, run.id)) is None
    assert await model_states(runtime, tenant.id) == {OLD: "retiring", NEW: "active"}
