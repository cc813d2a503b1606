"""Stores lessons as memories: reflections with their strategies, and insights.

A lesson that is known already is not stored again; the known memory gets one more observation.
Lessons that the rules wrote while the model failed are replaced in place by a later run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.schemas import fold_tags
from memory_api.core.secret_redaction import redact_value
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.core.tenant_locks import acquire_tenant_locks
from memory_api.memories.editing import rewrite_memory
from memory_api.memories.index.drafts import ADVICE_KINDS, PreparedMemory, prepare_memories
from memory_api.memories.index.scopes import ScopeAddress, find_scopes, kind_scope
from memory_api.memories.index.writer import ensure_scopes_and_labels, insert_memories
from memory_api.memories.queries import (
    NewLink,
    add_links,
    add_observation,
    find_same_text,
    get_memory,
    lock_memories,
)
from memory_api.memories.search.query import SearchFilters, SearchHit
from memory_api.memories.search.search import embed_query, search_in_session
from memory_api.memories.tables import MemoryRow
from memory_api.reflection.lesson_drafts import reflection_drafts
from memory_api.reflection.outside_text import OutsideTexts, confirm_repeated_advice, guard_lessons
from memory_api.reflection.schemas import QueryReflectionsRequest, ReflectionResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.webhooks.outbox import report_reflection

KEEP_TASK_HINT = load_statement("reflection/context.sql", "keep_task_hint")
REPLACES_RUN = "improve"
"""Input of a run that replaces what the rules wrote: a `DegradedRun`."""
REPLACE_REASON = "improved by model"


@dataclass(frozen=True)
class SavedLesson:
    """The memory that holds a lesson. `is_new` is False if the lesson was known: then the memory
    has one more observation.
    """

    memory_id: UUID
    is_new: bool


async def save_lessons(
    session: AsyncSession,
    lessons: Sequence[PreparedMemory],
    *,
    episodes: Sequence[PreparedMemory] = (),
    confirmed: Collection[UUID] = (),
    count_observations: bool = True,
    links: Callable[[Sequence[SavedLesson]], Iterable[NewLink]] = lambda _: (),
) -> list[SavedLesson]:
    """Insert new lessons, and count an observation of known ones; the answer is parallel to
    `lessons`. Every lesson is linked to its trace. `episodes` are inserted as they are. `links`
    gives further links. `confirmed` are other memories that the transaction will change.

    Transactions that may save the same lesson wait for each other, so call it late in the
    transaction.
    """
    await ensure_scopes_and_labels(session, lessons)
    await _lock_lessons(session, lessons)
    saved: list[SavedLesson] = []
    known_ids = await _find_known_lessons(session, lessons)
    new = [*episodes]
    for lesson in lessons:
        is_new = _text_key(lesson) not in known_ids
        new += [lesson] if is_new else []
        memory_id = known_ids.setdefault(_text_key(lesson), lesson.draft.id)
        saved.append(SavedLesson(memory_id, is_new))
    await insert_memories(session, new)
    await lock_memories(session, {*confirmed, *(n.memory_id for n in saved if not n.is_new)})
    for lesson, item in zip(lessons, saved, strict=True):
        if item.is_new and lesson.draft.kind == "reflection":
            report_reflection(session, lesson.draft)
        if not item.is_new:
            await _update_known_lesson(session, item.memory_id, lesson)
    if count_observations:
        await add_observation(session, {item.memory_id for item in saved if not item.is_new})
    of_traces = [
        NewLink(item.memory_id, "derived_from", "trace", lesson.draft.trace_id)
        for item, lesson in zip(saved, lessons, strict=True)
        if lesson.draft.trace_id is not None
    ]
    await add_links(session, [*of_traces, *links(saved)])
    return saved


async def _update_known_lesson(
    session: AsyncSession, memory_id: UUID, lesson: PreparedMemory
) -> None:
    """Confirm the known lesson if it waits, and keep the hint for the task."""
    if lesson.draft.kind in ADVICE_KINDS:
        await confirm_repeated_advice(session, memory_id, lesson)
    if hint := lesson.draft.metadata.get("task_hint"):
        parameters = {
            "tenant": current_tenant_id(session),
            "trace": lesson.draft.trace_id,
            "hint": hint,
        }
        await fetch_rows(session, KEEP_TASK_HINT, parameters)


TextKey = tuple[ScopeAddress, bytes]
"""The scope of a text and its fingerprint."""


def _text_key(lesson: PreparedMemory) -> TextKey:
    return lesson.draft.scope_address, lesson.fingerprint


async def _lock_lessons(session: AsyncSession, lessons: Sequence[PreparedMemory]) -> None:
    """Wait until no other transaction saves one of these lessons, which no query would find. Locks
    all at once, in one order, so take them together and before the memories of known lessons.
    """
    keys = {_text_key(lesson) for lesson in lessons}
    names = {f"lesson {'/'.join(address)}/{text.hex()}" for address, text in keys}
    await acquire_tenant_locks(session, names)


async def _find_known_lessons(
    session: AsyncSession, lessons: Sequence[PreparedMemory]
) -> dict[TextKey, UUID]:
    """Memories of the same project and kind with the same words as one of these."""
    scopes = await find_scopes(session, {lesson.draft.scope_address for lesson in lessons})
    addresses = {scope: address for address, scope in scopes.items()}
    wanted = {
        (scopes[address], fingerprint)
        for address, fingerprint in map(_text_key, lessons)
        if address in scopes
    }
    rows = await find_same_text(session, wanted)
    return {
        (addresses[scope], fingerprint): memory_id
        for (scope, fingerprint), memory_id in rows.items()
    }


@dataclass(frozen=True)
class DegradedRun:
    """A run for which the rules stood in, with the memories that it inserted."""

    run_id: UUID
    reflection_id: UUID | None = None
    strategy_id: UUID | None = None

    def to_input(self) -> dict[str, Any]:
        return {REPLACES_RUN: {name: str(value) for name, value in asdict(self).items() if value}}


def degraded_run_of(run: RunRow) -> DegradedRun | None:
    """The degraded run whose memories `run` replaces, if it is such a run."""
    ids: dict[str, str] | None = run.input.get(REPLACES_RUN)
    return DegradedRun(**{name: UUID(value) for name, value in ids.items()}) if ids else None


def degraded_run(run_id: UUID, saved: Sequence[SavedLesson]) -> DegradedRun | None:
    """What a later run with the model is to replace; `saved` are the reflection and its strategy.
    None if the reflection was known: that memory has another author.
    """
    if not saved:
        return DegradedRun(run_id)
    if not saved[0].is_new:
        return None
    ids = (item.memory_id if item.is_new else None for item in saved[:2])
    return DegradedRun(run_id, *ids)


async def replace_degraded(
    session: AsyncSession, degraded: DegradedRun, lessons: Sequence[PreparedMemory]
) -> list[SavedLesson]:
    """Rewrite the memories of a degraded run as new revisions, without a further observation.

    A memory that was changed or deleted meanwhile stays as it is; a lesson without a memory, such
    as the second rule, is saved as a new one.
    """
    saved: list[SavedLesson] = []
    ids = (degraded.reflection_id, degraded.strategy_id)
    await ensure_scopes_and_labels(session, lessons)
    await _lock_lessons(session, lessons)
    await lock_memories(session, [memory_id for memory_id in ids if memory_id])
    for lesson, memory_id in zip_longest(lessons, ids[: len(lessons)]):
        if memory_id is None:
            is_first = degraded.reflection_id is None
            saved += await save_lessons(session, [lesson], count_observations=is_first)
            continue
        memory = await get_memory(session, memory_id, for_update=True)
        is_unchanged = memory is not None and memory.change_run_id == degraded.run_id
        if memory is not None and is_unchanged:
            await _rewrite(session, memory, lesson)
        saved.append(SavedLesson(memory_id, is_new=is_unchanged))
    return saved


async def _rewrite(session: AsyncSession, memory: MemoryRow, lesson: PreparedMemory) -> None:
    draft = lesson.draft
    fields = {
        "content": draft.content,
        "tags": fold_tags(draft.tags),
        "importance": draft.importance,
        "confidence": draft.confidence,
        "error_category": draft.error_category,
        "source_event_ids": list(draft.source_event_ids),
        "metadata_": draft.metadata,
    }
    if draft.awaiting_confirmation:
        fields |= {"status": draft.status, "awaiting_confirmation": True}
    await rewrite_memory(
        session,
        memory,
        lesson,
        fields,
        reason=REPLACE_REASON,
        actor=draft.actor,
        run_id=draft.run_id,
    )


async def create_reflection(
    runtime: Runtime,
    tenant_id: UUID,
    project_id: str,
    result: ReflectionResult,
    *,
    session_id: str | None = None,
    trace_id: UUID | None = None,
) -> list[SavedLesson]:
    """Store a client's reflection and its strategy, redacted."""
    redacted, _ = redact_value(result.model_dump(mode="json"))
    result = ReflectionResult.model_validate(redacted)
    drafts = reflection_drafts(
        result, project_id=project_id, session_id=session_id, trace_id=trace_id
    )
    drafts = await guard_lessons(drafts, OutsideTexts())  # the client is the author
    lessons = await prepare_memories(await runtime.get_tenant_embedder(tenant_id), drafts)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        return await save_lessons(session, lessons)


async def search_lessons(
    runtime: Runtime, tenant_id: UUID, project_id: str, request: QueryReflectionsRequest
) -> list[SearchHit]:
    """The lessons of a project that match a request, best first."""
    query = await embed_query(
        await runtime.get_tenant_embedder(tenant_id), request.query_text or ""
    )
    filters = SearchFilters(
        kinds=tuple(request.kinds),
        tags=tuple(request.tags),
        error_categories=tuple(category.value for category in request.error_categories),
        min_importance=request.min_importance,
        since=request.since,
        until=request.until,
    )
    async with runtime.sessions.for_tenant(tenant_id) as session:
        addresses = [kind_scope(project_id, kind) for kind in request.kinds]
        return await search_in_session(session, query, addresses, top_k=request.k, filters=filters)
