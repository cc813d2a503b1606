"""A tenant moves to another embedding model while it is searched, written and changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy import select, update

from apps.memory_api.core.errors import Conflict
from apps.memory_api.embeddings.loaded import Spec
from apps.memory_api.embeddings.port import EmbedderFailed
from apps.memory_api.embeddings.tables import EmbeddingModel
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.queries import get_run
from apps.memory_api.jobs.tables import Run
from apps.memory_api.memory.change import change, remove
from apps.memory_api.memory.models import (
    Pass,
    drop_batch,
    fill,
    find_missing,
    number_of,
    sizes_of,
)
from apps.memory_api.memory.schemas import MemoryPatch
from apps.memory_api.memory.tables import Label, Memory
from apps.memory_api.runtime import Runtime
from apps.memory_api.worker import work
from apps.memory_api.workers import backfill, index, reembed
from apps.memory_api.workers.backfill import clear_old
from apps.memory_api.workers.upkeep import clear_vectors
from tests.conftest import Database, TestTenant
from tests.stub_provider import StubProvider, answer, server_error
from tests.workers.moving import (
    LATE,
    Mover,
    close_all,
    find,
    insights,
    process,
    remember,
    states,
    vectors,
)

OLD, NEW = "static-minilm-256/1", "openai/embed-b@64"
NOW = timedelta(0)


@pytest.fixture(scope="module")
def stub_server() -> Iterator[StubProvider]:
    with StubProvider() as stub:
        yield stub


@pytest.fixture
def stub(stub_server: StubProvider) -> Iterator[StubProvider]:
    yield stub_server
    stub_server.clear()


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await close_all()


@pytest.fixture
def spec(stub: StubProvider) -> Spec:
    return Spec("openai", "embed-b", 64, stub.openai_url)


@pytest.fixture
def mover(runtime: Runtime, tenant: TestTenant) -> Mover:
    return Mover(process(runtime, "mover"), tenant.id)


async def test_searches_and_writes_go_on_during_a_move(
    runtime: Runtime,
    tenant: TestTenant,
    mover: Mover,
    spec: Spec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two other processes search and write all the while: no answer is empty, and what was just
    written is found, before, during and after the flip."""
    await remember(runtime, tenant.id, insights(450))
    others = [process(runtime, "a"), process(runtime, "b")]
    over = asyncio.Event()
    rounds = [0, 0]

    async def use(number: int, other: Runtime) -> None:
        while not over.is_set():
            n = 1000 * (number + 1) + rounds[number]
            await remember(other, tenant.id, insights(1, start=n))
            hits = await find(other, tenant.id, f"page{n}")
            assert f"page{n} " in hits[0].memory.content
            known = rounds[number] % 450
            hits = await find(other, tenant.id, f"page{known}")
            assert f"page{known} " in hits[0].memory.content
            rounds[number] += 1

    users = [asyncio.create_task(use(n, other)) for n, other in enumerate(others)]
    await mover.move(spec)
    flipped = list(rounds)
    while any(now < before + 20 for now, before in zip(rounds, flipped, strict=True)):
        await asyncio.gather(*(u for u in users if u.done()))  # a failure ends the wait
        await asyncio.sleep(0.02)
    await asyncio.sleep(2 * LATE)
    over.set()
    await asyncio.gather(*users)

    written = 450 + sum(rounds)
    assert await states(runtime, tenant.id) == {OLD: "retiring", NEW: "active"}
    assert (await vectors(runtime, tenant.id))[NEW] == written
    monkeypatch.setattr(backfill, "DROPPED", 100)
    assert await clear_old(mover.runtime, tenant.id, grace=NOW) > 450
    assert await vectors(runtime, tenant.id) == {NEW: written}
    assert await states(runtime, tenant.id) == {NEW: "active"}
    hits = await find(others[0], tenant.id, "Lesson 7: retry page7 with cursor")
    assert hits[0].cosine == pytest.approx(1, abs=1e-3), "by vectors of the new model"


async def test_a_run_tells_how_far_it_is_and_what_it_did(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec, api: Any
) -> None:
    await remember(runtime, tenant.id, insights(250))
    told: list[tuple[int, int]] = []
    run = await mover.start(spec)
    await mover.go_on(run, progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, 250)
    assert (200, 250) in told
    assert told[-1] == (250, 250)
    seen = (await api.get(f"/api/v1/runs/{run.id}")).json()
    assert (seen["kind"], seen["state"]) == ("reembed", "done")
    assert seen["result"] == {"from": OLD, "to": NEW, "done": 250, "total": 250}


async def test_nothing_to_move_and_a_tenant_without_memories(
    tenant: TestTenant, mover: Mover, spec: Spec
) -> None:
    await mover.move(spec)
    assert await states(mover.runtime, tenant.id) == {OLD: "retiring", NEW: "active"}
    assert await reembed.start(mover.runtime, tenant.id, spec) is None


async def test_the_same_model_at_another_address_is_no_move(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec, stub: StubProvider
) -> None:
    await remember(runtime, tenant.id, insights(2))
    await mover.move(spec)
    with StubProvider() as elsewhere:
        moved = replace(spec, base_url=elsewhere.openai_url)
        assert await reembed.start(mover.runtime, tenant.id, moved) is None
        asked = len(stub.calls)
        await find(process(runtime), tenant.id, "page1")
        assert (len(stub.calls), len(elsewhere.calls)) == (asked, 2)
        await close_all()


async def test_away_from_a_model_that_cannot_be_loaded_any_more(
    runtime: Runtime, tenant: TestTenant, mover: Mover
) -> None:
    """As after an upgrade to a release with another bundled model."""
    await remember(runtime, tenant.id, insights(3))
    gone = "static-minilm-256/0"
    async with runtime.sessions.tenant(tenant.id) as session:
        for table, name in ((Label, Label.name), (EmbeddingModel, EmbeddingModel.label)):
            await session.execute(
                update(table)
                .where(table.tenant_id == tenant.id, name == OLD)
                .values({name.key: gone})
            )
    with pytest.raises(EmbedderFailed, match="hansei reembed"):
        await find(process(runtime), tenant.id, "page1")
    await mover.move(Spec("static"))
    assert "page1 " in (await find(process(runtime), tenant.id, "page1"))[0].memory.content
    assert await states(runtime, tenant.id) == {gone: "retiring", OLD: "active"}


async def test_there_and_back(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec
) -> None:
    """The way back finds the old vectors still there, and those of what came meanwhile missing."""
    await remember(runtime, tenant.id, insights(3))
    await mover.move(spec)
    async with runtime.sessions.tenant(tenant.id) as session:
        long_ago = EmbeddingModel.since - timedelta(minutes=1)  # no longer written beside
        await session.execute(
            update(EmbeddingModel)
            .where(EmbeddingModel.tenant_id == tenant.id, EmbeddingModel.label == OLD)
            .values(since=long_ago)
        )
    mover.runtime.models.forget(tenant.id)
    await remember(mover.runtime, tenant.id, insights(2, start=10))
    assert await vectors(runtime, tenant.id) == {OLD: 3, NEW: 5}
    await mover.move(Spec("static"))
    assert await vectors(runtime, tenant.id) == {OLD: 5, NEW: 5}
    assert await states(runtime, tenant.id) == {OLD: "active", NEW: "retiring"}


async def test_one_move_at_a_time_and_it_can_be_stopped(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec, stub: StubProvider
) -> None:
    await remember(runtime, tenant.id, insights(3))
    run = await mover.start(spec)
    again = await mover.start(spec)
    assert again.id == run.id, "the same move goes on"
    with pytest.raises(Conflict, match="embed-b"):
        await mover.start(Spec("openai", "embed-c", 32, stub.openai_url))
    assert await reembed.cancel(mover.runtime, tenant.id) == NEW
    assert await reembed.cancel(mover.runtime, tenant.id) is None
    async with runtime.sessions.tenant(tenant.id) as session:
        ended = await get_run(session, run.id)
    assert ended is not None
    assert (ended.state, ended.error["type"]) == ("failed", "Cancelled")
    await clear_old(mover.runtime, tenant.id, grace=NOW)
    assert await states(runtime, tenant.id) == {OLD: "active"}
    await mover.move(Spec("openai", "embed-c", 32, stub.openai_url))


async def test_cancelled_at_work_it_stops(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec
) -> None:
    await remember(runtime, tenant.id, insights(250))
    run = await mover.start(spec)
    stopped = asyncio.Event()

    def stop(done: int, _total: int) -> None:
        if done and not stopped.is_set():
            stopped.set()

    async def cancel() -> None:
        await stopped.wait()
        await reembed.cancel(process(runtime), tenant.id)

    cancelling = asyncio.create_task(cancel())
    with pytest.raises(runs.LeaseLost):
        await mover.go_on(run, progress=stop, settle=timedelta(seconds=30))
    await cancelling
    assert (await states(runtime, tenant.id))[OLD] == "active"


async def test_a_model_that_does_not_answer_is_refused_before_anything_changes(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec, stub: StubProvider
) -> None:
    await remember(runtime, tenant.id, insights(1))
    stub.behave = lambda _call: server_error(401)
    with pytest.raises(EmbedderFailed):
        await mover.start(spec)
    with pytest.raises(ValueError, match="unknown embedding provider"):
        await mover.start(Spec("nobody"))
    assert await states(runtime, tenant.id) == {OLD: "active"}


async def test_a_provider_that_fails_stops_no_writer_and_the_run_goes_on_later(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec, stub: StubProvider
) -> None:
    await remember(runtime, tenant.id, insights(250))
    run = await mover.start(spec)
    stub.behave = lambda call: server_error(401) if len(call.body["input"]) < 60 else answer("")
    with pytest.raises(EmbedderFailed):
        await mover.go_on(run)
    assert await vectors(runtime, tenant.id) == {OLD: 250, NEW: 200}
    writer = process(runtime)
    await remember(writer, tenant.id, insights(1, start=900))
    asked = len(stub.calls)
    await remember(writer, tenant.id, insights(1, start=901))
    assert len(stub.calls) == asked, "left alone for a while after it failed"
    assert (await vectors(runtime, tenant.id))[OLD] == 252
    async with runtime.sessions.tenant(tenant.id) as session:
        held = await session.get(Run, (tenant.id, run.id))
        await runs.fail(session, held, EmbedderFailed("scripted"))
    stub.clear()
    await mover.go_on(run)
    assert (await vectors(runtime, tenant.id))[NEW] == 252


async def test_a_worker_takes_over_what_a_command_left(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec
) -> None:
    await remember(runtime, tenant.id, insights(20))
    run = await mover.start(spec)
    async with runtime.sessions.tenant(tenant.id) as session:
        await session.execute(
            update(EmbeddingModel)
            .where(EmbeddingModel.tenant_id == tenant.id, EmbeddingModel.state == "filling")
            .values(since=EmbeddingModel.since - timedelta(minutes=1))
        )
    assert await work(process(runtime), Ticket(tenant.id, run.id)) is None
    assert await states(runtime, tenant.id) == {OLD: "retiring", NEW: "active"}


@pytest.mark.parametrize("what", ["change", "remove"])
async def test_what_changes_while_it_is_embedded_gets_no_stale_vector(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec, what: str
) -> None:
    await remember(runtime, tenant.id, insights(2))
    await mover.start(spec)
    embedder = await mover.runtime.models.embedders.open(spec)
    async with runtime.sessions.tenant(tenant.id) as session:
        source, target = await number_of(session, OLD), await number_of(session, NEW)
        memory = await session.scalar(
            select(Memory).where(Memory.tenant_id == tenant.id).order_by(Memory.n).limit(1)
        )
        assert memory is not None
        where = Pass(memory.scope, source, target)
        rows = await find_missing(session, where, 0, 10)
    assert [row.n for row in rows] == sorted(row.n for row in rows)
    made = await embedder.embed_documents([row.text for row in rows])
    late = process(runtime, seconds=60)
    vars(late)["models"] = runtime.models  # a process that knows nothing of the move
    if what == "change":
        await change(late, tenant.id, memory.id, MemoryPatch(content="It says more now"), "me")
    else:
        await remove(late, tenant.id, memory.id, "me")
    async with runtime.sessions.tenant(tenant.id) as session:
        assert await fill(session, where, rows, made) == 1
        missing = await find_missing(session, where, 0, 10)
    assert [row.text for row in missing] == (["It says more now"] if what == "change" else [])
    assert await backfill.backfill(mover.runtime, tenant.id, source, embedder) == len(missing)


async def test_a_batch_of_old_vectors_is_no_larger_than_was_asked(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec
) -> None:
    """Whatever plan the database chooses on tables it knows nothing about yet."""
    await remember(runtime, tenant.id, insights(300))
    await mover.move(spec)
    async with runtime.sessions.tenant(tenant.id) as session:
        old, new = await number_of(session, OLD), await number_of(session, NEW)
        (scope,) = await sizes_of(session, old)
        dropped = await drop_batch(session, Pass(scope, old, new), 0, 7)
        assert len(dropped) == 7
        rest = await drop_batch(session, Pass(scope, old, new), max(dropped), 1000)
        assert len(rest) == 293


async def test_what_was_written_at_the_last_moment_is_not_lost(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec
) -> None:
    """A process that was frozen for minutes writes with the old model alone."""
    frozen = process(runtime, "frozen", seconds=600)
    await remember(frozen, tenant.id, insights(3))
    await mover.move(spec)
    await remember(frozen, tenant.id, insights(1, start=77))
    assert await vectors(runtime, tenant.id) == {OLD: 4, NEW: 3}
    await clear_old(mover.runtime, tenant.id, grace=NOW)
    assert await vectors(runtime, tenant.id) == {NEW: 4}
    await remember(frozen, tenant.id, insights(1, start=78))
    await clear_old(mover.runtime, tenant.id)
    assert await vectors(runtime, tenant.id) == {NEW: 5}, "also when the old model is forgotten"
    assert "page78" in (await find(mover.runtime, tenant.id, "page78"))[0].memory.content


async def test_upkeep_waits_for_an_embedder_that_does_not_answer(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec, stub: StubProvider
) -> None:
    frozen = process(runtime, "frozen", seconds=600)
    await remember(frozen, tenant.id, insights(3))
    await mover.move(spec)
    await remember(frozen, tenant.id, insights(1, start=77))
    async with runtime.sessions.tenant(tenant.id) as session:
        await session.execute(
            update(EmbeddingModel)
            .where(EmbeddingModel.tenant_id == tenant.id, EmbeddingModel.label == OLD)
            .values(since=EmbeddingModel.since - timedelta(hours=1))
        )
    stub.behave = lambda _call: server_error(401)
    told = await clear_vectors(mover.runtime, tenant.id)
    assert told["vectors_dropped"] == 0
    assert "embed-b" in told["vectors_error"]
    assert await vectors(runtime, tenant.id) == {OLD: 4, NEW: 3}
    stub.clear()
    assert await clear_vectors(mover.runtime, tenant.id) == {"vectors_dropped": 4}


async def test_old_vectors_stay_for_a_while_after_the_flip(
    runtime: Runtime, tenant: TestTenant, mover: Mover, spec: Spec
) -> None:
    await remember(runtime, tenant.id, insights(3))
    await mover.move(spec)
    assert await clear_old(mover.runtime, tenant.id) == 0
    assert await vectors(runtime, tenant.id) == {OLD: 3, NEW: 3}


async def test_a_large_scope_has_its_vector_index_before_the_flip(
    runtime: Runtime,
    tenant: TestTenant,
    spec: Spec,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index, "MANY", 40)
    monkeypatch.setattr(index, "FEW", 20)
    owner_url = database.url("hansei_owner")
    settings = runtime.settings.model_copy(update={"owner_url": owner_url})
    owning = process(replace(runtime, settings=settings), "owning")
    mover = Mover(owning, tenant.id)
    await remember(runtime, tenant.id, insights(50))
    run = await mover.start(spec)
    kept = await index.keep_indexes(runtime.sessions, owner_url, tenant.id)
    assert len(kept["made"]) == 1, "the new model has none while it is being filled"
    await mover.go_on(run)
    assert len(await indexes_of(database, tenant)) == 2
    await clear_old(owning, tenant.id, grace=NOW)
    await index.keep_indexes(runtime.sessions, owner_url, tenant.id)
    (left,) = await indexes_of(database, tenant)
    assert left not in kept["made"]
    assert "page7 " in (await find(mover.runtime, tenant.id, "page7"))[0].memory.content
    monkeypatch.setattr(index, "FEW", 1000)
    await index.keep_indexes(runtime.sessions, owner_url, tenant.id)


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
