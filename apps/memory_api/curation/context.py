"""The part of a playbook that a curation needs: the bullets with the text of a lesson, earlier
decisions, and for a model the bullets near each lesson. Its size does not depend on the size of the
playbook.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.content_checks import may_confirm
from memory_api.curation.queries import (
    find_decisions,
    find_deleting_versions,
    list_active_bullets,
    list_bullet_titles,
    list_bullet_tools,
    list_proposed_deltas,
    list_trace_tools,
    list_traces_with_attempts,
    load_memories,
)
from memory_api.curation.schemas import Lesson
from memory_api.curation.tables import CuratedLessonRow
from memory_api.embeddings.port import Embedder
from memory_api.memories.index.drafts import fingerprint
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.search.query import EmbeddedQuery, MemoryRecord
from memory_api.memories.search.search import search_in_session
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.bullet_rows import to_bullet, to_state
from memory_api.playbooks.models import Bullet, DeltaContextItem, default_search_text
from memory_api.playbooks.queries import find_bullets
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.state import PlaybookState
from memory_api.playbooks.tables import PlaybookRow
from memory_api.text.terms import query_terms
from memory_api.traces.duplicates import MIN_INDEPENDENT_TRACES, count_independent_traces

NEAREST_PER_LESSON = 24
"""Bullets that a model may see per lesson."""
MAX_TITLES = 1_000
"""Bullets whose titles a model may see: the most useful ones. The prompt's budget limits them too.
"""
MAX_WHOLE_BULLETS = 48
"""A playbook with at most this many active bullets is shown to a model as a whole."""
MAX_COMPARED_PROPOSALS = 200
"""The number of newest proposals that are compared with the lessons."""


@dataclass(frozen=True)
class NearbyBullet:
    """A bullet near a text."""

    bullet: Bullet
    id: UUID
    observation_count: int = 1


@dataclass(frozen=True)
class EarlierDecision:
    """An earlier decision on a lesson: the key of its bullet, or the reason for none."""

    key: str | None
    reason: str


@dataclass(frozen=True)
class LessonEvidence:
    """What is known about the trace of a lesson."""

    task: str = ""
    tools: Sequence[str] = ()
    attempt_count: int = 0
    success_count: int = 0


@dataclass(frozen=True)
class CurationContext:
    """`near` and `evidence` are parallel to the lessons; `state` has the compared bullets by key.
    `near`, `whole`, `evidence`, `bullet_tools`, `titles` and `unconfirmed` are empty if no model
    decides.
    """

    version: int = 0
    state: PlaybookState = field(default_factory=PlaybookState)
    same_text: Mapping[int, str] = field(default_factory=dict[int, str])
    """Index of a lesson → key of the bullet with its text."""
    known: Mapping[int, EarlierDecision] = field(default_factory=dict[int, EarlierDecision])
    """By index of the lesson."""
    waiting: Collection[bytes] = ()
    """Fingerprints of the texts that open proposals would add."""
    near: Sequence[Sequence[NearbyBullet]] = ()
    whole: Sequence[NearbyBullet] = ()
    """All active bullets of a small playbook."""
    evidence: Sequence[LessonEvidence] = ()
    bullet_tools: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])
    """Key of a bullet near a lesson → the tools of the traces that taught it."""
    titles: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key of every active bullet → its title or content."""
    unconfirmed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key of a bullet that waits for confirmation, and that a lesson may confirm → its whole text.
    """
    focus: str | None = None
    """What the owner of the playbook wants to keep."""

    def uses_tools_of(self, lesson: int, key: str) -> bool:
        """Whether a bullet was taught by a trace that used a tool of the lesson's trace."""
        tools = self.evidence[lesson].tools if self.evidence else ()
        return not self.bullet_tools.get(key, frozenset()) or any(
            tool in self.bullet_tools[key] for tool in tools
        )


async def embed_lessons(embedder: Embedder, lessons: Sequence[Lesson]) -> list[EmbeddedQuery]:
    """The lessons as search queries, embedded like bullets. No transaction may be open."""
    texts = [
        default_search_text(lesson.when_to_use, lesson.title, lesson.text, []) for lesson in lessons
    ]
    return await embed_texts(embedder, texts)


async def embed_texts(embedder: Embedder, texts: Sequence[str]) -> list[EmbeddedQuery]:
    """Queries by vector only: texts with similar wording have similar vectors, and an exact scan is
    cheaper than the postings of a whole lesson.
    """
    if not texts:
        return []
    vectors = await embedder.embed_documents(texts)
    return [
        EmbeddedQuery(embedder.model, vector, {} if vector.any() else query_terms(text))
        for vector, text in zip(vectors, texts, strict=True)
    ]


async def find_nearest_bullets(
    session: AsyncSession, ref: PlaybookRef, query: EmbeddedQuery
) -> list[NearbyBullet]:
    """The active bullets nearest to a text; none for an empty query."""
    if query.is_empty:
        return []
    hits = await search_in_session(session, query, [ref.address], top_k=NEAREST_PER_LESSON)
    return [to_nearby(hit.memory) for hit in hits]


async def load_context(
    session: AsyncSession,
    playbook: PlaybookRow | None,
    ref: PlaybookRef,
    lessons: Sequence[Lesson],
    queries: Sequence[EmbeddedQuery] | None = None,
) -> CurationContext:
    """Loads the context of these lessons in one transaction. `queries` are the lessons as search
    queries, if a model decides: they add what only a model reads.
    """
    if playbook is None:
        evidence = [] if queries is None else await load_evidence(session, lessons)
        return CurationContext(near=[()] * len(lessons), evidence=evidence)
    prints = [fingerprint(lesson.text) for lesson in lessons]
    rows = await find_bullets(session, playbook.scope_id, [], fingerprints=sorted(set(prints)))
    existing = {key: row for key, row in rows.items() if row.status != MemoryStatus.DELETED}
    key_by_print = {row.fingerprint: key for key, row in existing.items()}
    context = CurationContext(
        playbook.version,
        to_state(playbook, {key: to_bullet(row) for key, row in existing.items()}),
        {index: key_by_print[text] for index, text in enumerate(prints) if text in key_by_print},
        await find_earlier_decisions(session, playbook, lessons),
        await list_proposed_texts(session, playbook.scope_id),
    )
    if queries is None:
        return context
    return await _add_model_context(session, playbook, ref, lessons, queries, context)


async def _add_model_context(
    session: AsyncSession,
    playbook: PlaybookRow,
    ref: PlaybookRef,
    lessons: Sequence[Lesson],
    queries: Sequence[EmbeddedQuery],
    context: CurationContext,
) -> CurationContext:
    """The evidence of each lesson, the bullets near it, all bullets of a small playbook, and the
    titles of a larger one.
    """
    near = [await find_nearest_bullets(session, ref, query) for query in queries]
    whole: list[NearbyBullet] = []
    if playbook.active_count <= MAX_WHOLE_BULLETS:
        rows = await list_active_bullets(session, playbook.scope_id)
        whole = [to_nearby(row) for row in sorted(rows, key=lambda row: row.seq)]
    shown = {nearby.id: nearby.bullet for candidates in (whole, *near) for nearby in candidates}
    bullets = {bullet.id: bullet for bullet in shown.values()} | dict(context.state.bullets)
    tools = await list_bullet_tools(session, shown)
    active = await list_bullet_titles(session, playbook.scope_id, MAX_TITLES)
    waiting = await list_bullet_titles(session, playbook.scope_id, MAX_TITLES, waiting=True)
    texts = {row.key: ": ".join(filter(None, (row.when_to_use, row.content))) for row in waiting}
    return replace(
        context,
        state=to_state(playbook, bullets),
        near=near,
        whole=whole,
        focus=playbook.focus,
        evidence=await load_evidence(session, lessons),
        bullet_tools={shown[bullet_id].id: names for bullet_id, names in tools.items()},
        titles={row.key: row.title or row.content for row in active},
        unconfirmed={
            key: text
            for key, text in texts.items()
            if any(may_confirm(lesson.advice, text) for lesson in lessons)
        },
    )


async def load_evidence(session: AsyncSession, lessons: Sequence[Lesson]) -> list[LessonEvidence]:
    trace_ids = {lesson.trace_id for lesson in lessons if lesson.trace_id is not None}
    tools = await list_trace_tools(session, trace_ids)
    traces = await list_traces_with_attempts(session, trace_ids)
    evidence: list[LessonEvidence] = []
    for lesson in lessons:
        if lesson.trace_id is None or lesson.trace_id not in traces:
            evidence.append(LessonEvidence())
            continue
        task, attempts, successes = traces[lesson.trace_id]
        names = tools.get(lesson.trace_id, [])
        evidence.append(LessonEvidence(task or "", names, max(1, attempts), successes))
    return evidence


async def list_proposed_texts(session: AsyncSession, scope: int) -> set[bytes]:
    """The fingerprints of the texts that open proposals would add."""
    return {
        fingerprint(delta.content)
        for deltas in await list_proposed_deltas(session, scope, MAX_COMPARED_PROPOSALS)
        for delta in map(DeltaContextItem.model_validate, deltas)
        if delta.type == "ADD"
    }


async def find_earlier_decisions(
    session: AsyncSession, playbook: PlaybookRow, lessons: Sequence[Lesson]
) -> dict[int, EarlierDecision]:
    """Index of a lesson → the earlier decision on its text. One that waits is decided again, and so
    is one that was rejected when only another trace taught it: a text in that prompt may have
    ordered the rejection.
    """
    fingerprints = [fingerprint(lesson.text) for lesson in lessons]
    known = await find_decisions(session, playbook.scope_id, set(fingerprints))
    named = (id_ for row in known.values() for id_ in (row.bullet_id, row.memory_id))
    rows = await load_memories(session, {id_ for id_ in named if id_ is not None})
    deleting_candidates = {
        row.playbook_version
        for row in rows.values()
        if row.status == MemoryStatus.DELETED and row.playbook_version
    }
    deleting_versions = await find_deleting_versions(
        session, playbook.scope_id, deleting_candidates
    )
    decisions: dict[int, EarlierDecision] = {}
    for index, lesson_fingerprint in enumerate(fingerprints):
        row = known.get(lesson_fingerprint)
        if row is None or row.decision == "waiting":
            continue
        if row.decision == "rejected" and row.memory_id and row.memory_id in rows:
            trace_ids = (rows[row.memory_id].trace_id, lessons[index].trace_id)
            traces = {id_ for id_ in trace_ids if id_ is not None}
            if await count_independent_traces(session, traces) >= MIN_INDEPENDENT_TRACES:
                continue
        bullet = rows.get(row.bullet_id) if row.bullet_id else None
        if bullet is None:
            decisions[index] = EarlierDecision(None, _rejection_reason(row))
        elif bullet.status != MemoryStatus.DELETED or bullet.key in playbook.aliases:
            key = playbook.aliases.get(bullet.key or "", bullet.key)
            decisions[index] = EarlierDecision(key, f"Bullet {key} has this lesson.")
        elif bullet.playbook_version not in deleting_versions:
            decisions[index] = EarlierDecision(
                None, f"Bullet {bullet.key} with this lesson was deleted."
            )
    return decisions


def _rejection_reason(row: CuratedLessonRow) -> str:
    if row.decision == "proposed":
        return "This lesson was already proposed."
    rejected = "This lesson was already rejected."
    return f"{rejected} {row.reason.removeprefix(rejected).strip()}" if row.reason else rejected


def to_nearby(row: MemoryRow | MemoryRecord) -> NearbyBullet:
    return NearbyBullet(to_bullet(row), row.id, row.observation_count)
