"""The part of a playbook that concerns some lessons: the bullets near each, those that say the very
words, and what was decided on these words before. It never grows with the playbook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.curator.duplicates import Near
from apps.memory_api.curator.queries import (
    known_lessons,
    memories_by_id,
    quarantined_bullets,
    versions_that_delete_all,
    waiting_deltas,
)
from apps.memory_api.curator.schemas import Lesson
from apps.memory_api.curator.tables import CuratedLesson
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.memory.find import Question, search
from apps.memory_api.memory.prepare import fingerprint
from apps.memory_api.memory.schemas import Status
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.deltas import plain_words
from apps.memory_api.playbook.queries import find_bullets
from apps.memory_api.playbook.rows import Place, state_of, to_bullet
from apps.memory_api.playbook.schemas import Bullet, DeltaContextItem, searchable
from apps.memory_api.playbook.state import PlaybookState
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.text.tokens import query_terms

NEAR = 24
"""Bullets looked at per lesson. Of 678 pairs that say the same among the lessons of real traces,
the nearest of each came 16th or sooner; of ACE bullets and Japanese sentences, third.
"""
ASIDE = 200
"""Quarantined bullets, and proposals, that are looked at: the newest."""


@dataclass(frozen=True)
class Known:
    """What was decided on a lesson before: the key that stands for it, or why there is none."""

    key: str | None
    reason: str


@dataclass(frozen=True)
class View:
    """`near` is parallel to the lessons; `state` holds the bullets that were looked at, by key."""

    version: int = 0
    state: PlaybookState = field(default_factory=PlaybookState)
    near: Sequence[Sequence[Near]] = ()
    known: Mapping[int, Known] = field(default_factory=dict[int, Known])
    """By index of the lesson."""
    waiting: Sequence[str] = ()
    """Texts that wait for a person."""


async def questions(embedder: Embedder, lessons: Sequence[Lesson]) -> list[Question]:
    """The lessons as search takes them, embedded as bullets are. No transaction may be open."""
    texts = [searchable(o.when_to_use, o.title, o.text, []) for o in lessons]
    return await questions_of(embedder, texts)


async def questions_of(embedder: Embedder, texts: Sequence[str]) -> list[Question]:
    """By meaning alone: what is near in wording is near in meaning, and an exact scan of vectors
    hardly grows with the playbook, as the postings of a whole lesson do.
    """
    if not texts:
        return []
    vectors = await embedder.embed_documents(texts)
    return [
        Question(embedder.model, vector, {} if vector.any() else query_terms(text))
        for vector, text in zip(vectors, texts, strict=True)
    ]


async def nearest_to(session: AsyncSession, place: Place, question: Question) -> list[Near]:
    """The active bullets nearest to a text; none for a text that says nothing."""
    if question.is_empty:
        return []
    hits = await search(session, question, [place.address], top_k=NEAR)
    return [Near(to_bullet(h.memory), h.memory.id, h.cosine, h.memory.witnesses) for h in hits]


async def look(
    session: AsyncSession,
    playbook: PlaybookRow | None,
    place: Place,
    lessons: Sequence[Lesson],
    asked: Sequence[Question],
) -> View:
    """What concerns these lessons, in one transaction."""
    if playbook is None:
        return View(near=[()] * len(lessons))
    near = [await nearest_to(session, place, question) for question in asked]
    said = await said_before(session, playbook, lessons)
    aside = [near_of(row) for row in await quarantined_bullets(session, playbook.scope, ASIDE)]
    for lesson, found in zip(lessons, near, strict=True):
        words = plain_words(lesson.text)
        exact = [n for n in said.exact if plain_words(n.bullet.content) == words]
        keys = {n.bullet.id for n in found}
        found += [n for n in (*exact, *aside) if n.bullet.id not in keys]
    bullets = {n.bullet.id: n.bullet for found in near for n in found} | dict(said.hinted)
    return View(playbook.version, state_of(playbook, bullets), near, said.known, said.waiting)


@dataclass(frozen=True)
class SaidBefore:
    """What can be found by words and keys alone, without a search."""

    exact: Sequence[Near]
    hinted: Mapping[str, Bullet]
    known: Mapping[int, Known]
    waiting: Sequence[str]


async def said_before(
    session: AsyncSession, playbook: PlaybookRow, lessons: Sequence[Lesson]
) -> SaidBefore:
    """Bullets with the very words of a lesson, those that its hints name, and what was decided on
    its words.
    """
    prints = [fingerprint(lesson.text) for lesson in lessons]
    aliases = playbook.aliases
    keys = {aliases.get(h.key, h.key) for lesson in lessons for h in lesson.hints}
    rows = await find_bullets(session, playbook.scope, keys, said=sorted(set(prints)))
    alive = [row for row in rows.values() if row.status != Status.DELETED]
    known = await known_lessons(session, playbook.scope, set(prints))
    return SaidBefore(
        exact=[near_of(row) for row in alive if row.fingerprint in prints],
        hinted={row.key or "": to_bullet(row) for row in alive if row.key in keys},
        known=await decided(session, playbook, prints, known),
        waiting=await waiting_texts(session, playbook.scope),
    )


async def waiting_texts(session: AsyncSession, scope: int) -> list[str]:
    """What would be added if a person said yes."""
    return [
        delta.content
        for deltas in await waiting_deltas(session, scope, ASIDE)
        for delta in map(DeltaContextItem.model_validate, deltas)
        if delta.type == "ADD"
    ]


async def decided(
    session: AsyncSession,
    playbook: PlaybookRow,
    prints: Sequence[bytes],
    known: Mapping[bytes, CuratedLesson],
) -> dict[int, Known]:
    ids = {row.bullet_id for row in known.values() if row.bullet_id is not None}
    rows = await memories_by_id(session, ids)
    gone = {row.version for row in rows.values() if row.status == Status.DELETED and row.version}
    wiped = await versions_that_delete_all(session, playbook.scope, gone)
    found: dict[int, Known] = {}
    for index, said in enumerate(prints):
        if (row := known.get(said)) is None:
            continue
        bullet = rows.get(row.bullet_id) if row.bullet_id else None
        if bullet is None:
            found[index] = Known(None, _why(row))
        elif bullet.status != Status.DELETED or bullet.key in playbook.aliases:
            key = playbook.aliases.get(bullet.key or "", bullet.key)
            found[index] = Known(key, f"{key} stands for it")
        elif bullet.version not in wiped:
            found[index] = Known(None, f"{bullet.key}, which said it, was taken out")
    return found


def _why(row: CuratedLesson) -> str:
    if row.decision == "held":
        return "it was proposed before"
    return f"it was left out before: {row.reason}" if row.reason else "it was left out before"


def near_of(row: Memory, cosine: float | None = None) -> Near:
    return Near(to_bullet(row), row.id, cosine, row.witnesses)


def ids_of(near: Sequence[Sequence[Near]]) -> dict[str, UUID]:
    return {n.bullet.id: n.id for found in near for n in found}
