"""Two writers at once end in one valid history, shown against a model."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient

from memory_api.bootstrap import build_runtime
from memory_api.core.db import Sessions, open_engine
from memory_api.core.errors import HanseiError
from memory_api.core.ids import new_id
from memory_api.playbooks.bullet_rows import to_bullets
from memory_api.playbooks.deltas import apply_deltas
from memory_api.playbooks.editing.edits import (
    apply_deltas_to_playbook,
    delete_bullet,
    edit_bullet,
    require_playbook,
)
from memory_api.playbooks.formats.transfer import load_playbook
from memory_api.playbooks.history.versions import restore_playbook
from memory_api.playbooks.models import Bullet, DeltaContextItem
from memory_api.playbooks.queries import list_bullets_as_of, list_versions
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.state import PlaybookState
from memory_api.playbooks.verdicts.record import NewVerdict, record_verdicts
from memory_api.runtime import Runtime
from tests.conftest import Database
from tests.support.playbook_api import Book

WORDS = ["order", "refund", "retry", "確認する", "注文番号", "ask", "timeout", "cite", "token"]


def said(bullet: Bullet) -> tuple[Any, ...]:
    """What a revision keeps of a bullet."""
    names = ("id", "section", "content", "title", "when_to_use", "tags", "keywords", "status")
    return (*(str(getattr(bullet, name)) for name in names), bullet.pinned)


@dataclass
class Writers:
    """Two processes' worth of connections that edit one playbook."""

    one: Runtime
    two: Runtime
    tenant_id: UUID
    place: PlaybookRef = field(default_factory=lambda: PlaybookRef("default", "book"))

    async def bullets(self) -> list[Bullet]:
        async with self.one.sessions.for_tenant(self.tenant_id) as session:
            playbook = await require_playbook(session, self.place)
            return (await load_playbook(session, playbook)).bullets


@pytest.fixture
async def writers(runtime: Runtime, database: Database, tenant: Any) -> Any:
    engine = open_engine(database.url("hansei_app"), pool_size=3)
    sessions = Sessions(engine)
    other = build_runtime(runtime.settings, sessions, runtime.default_embedder, runtime.queue)
    yield Writers(runtime, other, tenant.id)
    await sessions.close()


def some_deltas(rng: random.Random, keys: list[str]) -> list[DeltaContextItem]:
    """One to three deltas, some of which make no sense by the time they arrive."""

    def text() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))

    deltas: list[DeltaContextItem] = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(["ADD", "ADD", "ADD", "UPDATE", "MERGE", "DELETE", "KEEP"])
        if kind == "ADD" or len(keys) < 2:
            section = rng.choice(["pat", "mis", ""])
            deltas.append(DeltaContextItem(type="ADD", section=section, content=text()))
        elif kind == "MERGE":
            sources = rng.sample(keys, 2)
            deltas.append(DeltaContextItem(type="MERGE", source_ids=sources, content=text()))
        else:
            key = rng.choice(keys)
            content = text() if kind == "UPDATE" else ""
            deltas.append(DeltaContextItem(type=kind, bullet_id=key, content=content))
    return deltas


async def step(writers: Writers, runtime: Runtime, rng: random.Random, keys: list[str]) -> str:
    """One edit by one writer; what the other did meanwhile may make it a refused one."""
    tenant_id, place = writers.tenant_id, writers.place
    author = ChangeAuthor(runtime.process_name, "at random")
    choice = rng.random()
    try:
        if choice < 0.6 or not keys:
            await apply_deltas_to_playbook(
                runtime, tenant_id, place, some_deltas(rng, keys), author
            )
        elif choice < 0.7:
            fields = {"status": rng.choice(["active", "quarantined", "archived"])}
            await edit_bullet(runtime, tenant_id, place, rng.choice(keys), fields, author)
        elif choice < 0.75:
            await delete_bullet(runtime, tenant_id, place, rng.choice(keys), author)
        elif choice < 0.8:
            await restore_playbook(runtime, tenant_id, place, rng.randint(0, 30), author)
        else:
            verdict = NewVerdict(rng.choice(keys), "helpful", "llm", trace_id=new_id())
            await record_verdicts(runtime, tenant_id, place, [verdict])
            return "voted"
    except HanseiError as refused:
        return refused.code
    return "written"


@pytest.mark.parametrize("seed", [1, 2])
async def test_two_writers_make_one_history(writers: Writers, api: AsyncClient, seed: int) -> None:
    rng = random.Random(seed)
    seen: dict[int, list[tuple[Any, ...]]] = {}
    outcomes: list[str] = []
    await apply_deltas_to_playbook(
        writers.one, writers.tenant_id, writers.place, some_deltas(rng, []), ChangeAuthor("first")
    )
    for _ in range(25):
        keys = [bullet.id for bullet in await writers.bullets()]
        both = await asyncio.gather(
            *(step(writers, runtime, rng, keys) for runtime in (writers.one, writers.two))
        )
        outcomes += both
        async with writers.one.sessions.for_tenant(writers.tenant_id) as session:
            playbook = await require_playbook(session, writers.place)
            now = await load_playbook(session, playbook)
            then = await list_bullets_as_of(session, playbook.scope_id, playbook.version)
            assert playbook.active_count == sum(b.status == "active" for b in now.bullets)
        assert [said(b) for b in to_bullets(then)] == [said(b) for b in now.bullets]
        seen[playbook.version] = [said(b) for b in now.bullets]
    assert {"written", "voted", "not_found", "invalid"} <= set(outcomes)
    async with writers.one.sessions.for_tenant(writers.tenant_id) as session:
        versions = await list_versions(session, playbook.scope_id, limit=1000)
        assert [v.version for v in versions] == list(range(playbook.version, 0, -1))
        times = [v.created_at for v in versions]
        assert times == sorted(times, reverse=True)
        assert len(set(times)) == len(times)
        for version, bullets in seen.items():
            rows = await list_bullets_as_of(session, playbook.scope_id, version)
            assert [said(b) for b in to_bullets(rows)] == bullets
    assert await Book(api).problems() == []


async def test_single_writer_matches_pure_rules(writers: Writers) -> None:
    """The rows, of which only what a delta touches is loaded, against the whole state in memory."""
    rng = random.Random(3)
    model = PlaybookState()
    for _ in range(30):
        deltas = some_deltas(rng, list(model.bullets))
        author = ChangeAuthor("one")
        try:
            model, results = apply_deltas(model, deltas)
        except ValueError:
            with pytest.raises(HanseiError):
                await apply_deltas_to_playbook(
                    writers.one, writers.tenant_id, writers.place, deltas, author
                )
            continue
        done = await apply_deltas_to_playbook(
            writers.one, writers.tenant_id, writers.place, deltas, author
        )
        assert [(r.action, r.key) for r in done.results] == [(r.action, r.key) for r in results]
        assert {b.id: b for b in await writers.bullets()} == model.bullets
    assert len(model.bullets) > 5
    assert model.aliases


async def test_merging_loses_no_verdict(writers: Writers) -> None:
    tenant_id, place = writers.tenant_id, writers.place
    adds = [DeltaContextItem(type="ADD", section="pat", content=f"words {n}") for n in range(6)]
    await apply_deltas_to_playbook(writers.one, tenant_id, place, adds, ChangeAuthor("one"))

    async def vote(n: int) -> None:
        verdict = NewVerdict(f"pat-0000{n % 6 + 1}", "helpful", "llm", trace_id=new_id())
        await record_verdicts(writers.one, tenant_id, place, [verdict])

    async def merge() -> None:
        for n in range(2, 7):
            merged = DeltaContextItem(type="MERGE", source_ids=["pat-00001", f"pat-0000{n}"])
            await apply_deltas_to_playbook(
                writers.two, tenant_id, place, [merged], ChangeAuthor("two")
            )

    await asyncio.gather(merge(), *(vote(n) for n in range(48)))
    (left,) = await writers.bullets()
    assert (left.id, left.helpful) == ("pat-00001", 48)


async def test_concurrent_writers_all_succeed(writers: Writers) -> None:
    tenant_id, place = writers.tenant_id, writers.place

    async def add(n: int) -> int:
        runtime = (writers.one, writers.two)[n % 2]
        delta = DeltaContextItem(type="ADD", section="pat", content=f"number {n}")
        return (
            await apply_deltas_to_playbook(runtime, tenant_id, place, [delta], ChangeAuthor("x"))
        ).version

    versions = await asyncio.gather(*(add(n) for n in range(16)))
    assert sorted(versions) == list(range(1, 17))
    assert sorted(b.id for b in await writers.bullets()) == [f"pat-{n:05d}" for n in range(1, 17)]
