"""One playbook of a fresh tenant, curated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from memory_api.bootstrap import wrap_models
from memory_api.budgets.accounting import ModelAccounting
from memory_api.core.ids import new_id
from memory_api.curation.apply import apply_plan
from memory_api.curation.curate import curate
from memory_api.curation.schemas import ApplyResult, CurationPlan, Lesson
from memory_api.curation.tables import CuratedLessonRow
from memory_api.llm.circuit_breaker import CircuitBreakers
from memory_api.llm.registry import open_llm
from memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from memory_api.memories.index.writer import insert_memories
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.tables import MemoryLinkRow, MemoryRow
from memory_api.playbooks.bullet_rows import bullets_by_key
from memory_api.playbooks.editing.edits import apply_deltas_to_playbook, update_settings
from memory_api.playbooks.inbox.inbox import add_lessons
from memory_api.playbooks.models import Bullet, DeltaContextItem, VerdictTag
from memory_api.playbooks.queries import (
    ensure_playbook,
    find_bullets,
    get_playbook,
    list_bullets_as_of,
    list_versions,
)
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.sections import DEFAULT_SECTIONS
from memory_api.playbooks.tables import InboxLessonRow, PlaybookRow
from memory_api.playbooks.usefulness import usefulness
from memory_api.playbooks.verdicts.record import Judge, NewVerdict, record_verdicts
from memory_api.runs.chain import enqueue_shared_run
from memory_api.runs.lifecycle import new_run
from memory_api.runs.queries import list_runs, select_runs
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.worker import RUN_STEPS, Steps, process_ticket
from tests.conftest import TestTenant
from tests.support.stub_provider import StubProvider
from tests.support.tickets import waiting_tickets

MODELS = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-5-5"}


def operation(kind: str, *lessons: int, **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(
        ("bullet_id", "section", "title", "when_to_use", "content")
    )
    rest = {"source_ids": [], "contradicts": [], "reasoning": "because"}
    return {"type": kind, "lessons": list(lessons)} | empty | rest | more


def said(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"reasoning": "looked at", "operations": list(operations)}


def lesson(text: str, **more: Any) -> Lesson:
    """A lesson of a run of its own."""
    return Lesson(**{"text": text, "trace_id": new_id()} | more)


@dataclass
class Book:
    runtime: Runtime
    tenant_id: UUID
    place: PlaybookRef = field(default_factory=lambda: PlaybookRef("default", "book"))

    async def think(self, *lessons: Lesson, **more: Any) -> CurationPlan:
        return await curate(self.runtime, self.tenant_id, self.place, lessons, run_id=None, **more)

    async def merge(self, curation: CurationPlan, **more: Any) -> ApplyResult:
        author = ChangeAuthor("curator", "learning")
        return await apply_plan(self.runtime, self.tenant_id, self.place, curation, author, **more)

    async def learn(self, *lessons: Lesson) -> ApplyResult:
        return await self.merge(await self.think(*lessons))

    async def add(self, *texts: str, **more: Any) -> Sequence[str]:
        deltas = [DeltaContextItem(type="ADD", content=text, **more) for text in texts]
        done = await apply_deltas_to_playbook(
            self.runtime, self.tenant_id, self.place, deltas, ChangeAuthor("person")
        )
        return [result.key or "" for result in done.results]

    async def deltas(self, *deltas: DeltaContextItem) -> None:
        author = ChangeAuthor("person")
        await apply_deltas_to_playbook(
            self.runtime, self.tenant_id, self.place, list(deltas), author
        )

    async def configure(self, **fields: Any) -> None:
        author = ChangeAuthor("person")
        await update_settings(self.runtime, self.tenant_id, self.place, fields, author)

    async def row(self) -> PlaybookRow:
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            found = await get_playbook(session, self.place)
            assert found is not None
            return found

    async def bullets(self) -> dict[str, Bullet]:
        playbook = await self.row()
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            rows = await list_bullets_as_of(session, playbook.scope_id)
            return bullets_by_key(rows)

    async def memory(self, key: str) -> MemoryRow:
        playbook = await self.row()
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            return (await find_bullets(session, playbook.scope_id, [key]))[key]

    async def set(self, key: str, **values: Any) -> None:
        """Counters and the like, as evidence would have set them."""
        playbook = await self.row()
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            row = (await find_bullets(session, playbook.scope_id, [key], lock=True))[key]
            for name, value in values.items():
                setattr(row, name, value)
            row.usefulness = usefulness(row.helpful or 0, row.harmful or 0)

    async def judge(
        self, key: str, judge: Judge, tag: VerdictTag, said: str | None, trace_id: UUID
    ) -> None:
        """The verdict of a run; `said` is that of a model before its limits."""
        evidence = {"said": said} if said else {}
        verdict = NewVerdict(key, tag, judge, trace_id=trace_id, evidence=evidence)
        await record_verdicts(self.runtime, self.tenant_id, self.place, [verdict])

    async def versions(self) -> list[Any]:
        playbook = await self.row()
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            return list(await list_versions(session, playbook.scope_id, limit=1000))

    async def links(self, relation: str) -> list[tuple[UUID, UUID]]:
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            rows = await session.scalars(
                select(MemoryLinkRow).where(
                    MemoryLinkRow.tenant_id == self.tenant_id, MemoryLinkRow.relation == relation
                )
            )
            return [(row.source_id, row.target_id) for row in rows]

    async def remembered(self) -> list[str]:
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            rows = await session.scalars(
                select(CuratedLessonRow.decision).where(
                    CuratedLessonRow.tenant_id == self.tenant_id
                )
            )
            return sorted(rows)

    async def hand_on(self, *texts: str, trace_id: UUID | None = None) -> UUID:
        """Put lessons of one trace into the inbox, as a reflection does."""
        drafts = [
            MemoryDraft(
                MemoryKind.STRATEGY,
                self.place.project_id,
                text,
                is_guarded=True,
                metadata={"model": "m"},
            )
            for text in texts
        ]
        items = await prepare_memories(
            await self.runtime.get_tenant_embedder(self.tenant_id), drafts
        )
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            playbook = await ensure_playbook(session, self.place, DEFAULT_SECTIONS)
            rows = await insert_memories(session, items)
            run = new_run(session, "reflect", project_id="default", trace_id=trace_id or new_id())
            run.state = "done"
            interval = self.runtime.curation_interval
            curation, queued = await add_lessons(
                session, playbook, [row.id for row in rows], run, interval=interval
            )
            if queued is not None:
                await enqueue_shared_run(self.runtime.queue, session, queued)
        return curation

    async def drain(self, steps: Steps = RUN_STEPS) -> None:
        """Do all work that is due, with the model of this book."""
        while tickets := await waiting_tickets(self.runtime, self.tenant_id):
            for ticket in tickets:
                await process_ticket(self.runtime, ticket, steps)

    async def inbox(self) -> list[InboxLessonRow]:
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            rows = await session.scalars(
                select(InboxLessonRow)
                .where(InboxLessonRow.tenant_id == self.tenant_id)
                .order_by(InboxLessonRow.id)
            )
            return list(rows)

    async def runs(self, kind: str) -> list[RunRow]:
        """Oldest first."""
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            runs = await list_runs(session, select_runs(session, kind=kind), limit=200)
            return [*reversed(runs)]


@pytest.fixture
def book(runtime: Runtime, tenant: TestTenant) -> Book:
    return Book(replace(runtime, llm=None), tenant.id)


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as running:
        yield running


@pytest.fixture(params=["openai", "anthropic"])
async def asked(
    request: pytest.FixtureRequest, runtime: Runtime, stub: StubProvider, tenant: TestTenant
) -> AsyncIterator[Book]:
    """A playbook that a model curates."""
    url = stub.openai_url if request.param == "openai" else stub.anthropic_url
    llm = open_llm(request.param, model=MODELS[request.param], api_key="test", base_url=url)
    assert llm is not None
    chain = wrap_models(
        [llm],
        accounting=ModelAccounting(runtime.sessions),
        circuit_breakers=CircuitBreakers(),
        attempts=1,
    )
    yield Book(replace(runtime, llm=chain), tenant.id)
    await llm.aclose()
