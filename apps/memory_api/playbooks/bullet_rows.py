"""Converts bullets to and from rows of `memories`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import Select, tuple_

from memory_api.core.pagination import Cursor, invalid_cursor
from memory_api.core.statements import StatementRow
from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.memories.search.query import MemoryRecord, SearchColumns
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.models import Bullet, join_search_text
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.sections import SectionDefinition
from memory_api.playbooks.state import PlaybookState
from memory_api.playbooks.tables import PlaybookRow
from memory_api.playbooks.usefulness import usefulness

SOURCE_TRAJECTORY = "source_trajectory"
"""The key of a memory's metadata that holds S2's field of this name."""
INDEXED_FIELDS = ("searchable_text", "section", "tags", "confidence_score")
"""The fields of a bullet that the search index holds. A change of one re-indexes the bullet."""


class BulletOrder(StrEnum):
    """By key, or by usefulness and then by key. A minus sign means the highest first."""

    KEY = "key"
    LEAST_USEFUL = "usefulness"
    MOST_USEFUL = "-usefulness"


def bullet_cursor(row: MemoryRow, order: BulletOrder) -> Cursor:
    key = row.key or ""
    if order is BulletOrder.KEY:
        return Cursor("bullets", (key,))
    return Cursor(f"bullets {order}", (repr(row.usefulness), key))


def order_bullets(
    query: Select[MemoryRow], order: BulletOrder, cursor: Cursor | None
) -> Select[MemoryRow]:
    """Sort the bullets and start after the cursor. Raises `InvalidRequest` for a cursor of another
    order.
    """
    if order is BulletOrder.KEY:
        if cursor is not None:
            query = query.where(MemoryRow.key > cursor.text("bullets"))
        return query.order_by(MemoryRow.key)
    columns = tuple_(MemoryRow.usefulness, MemoryRow.key)
    is_descending = order is BulletOrder.MOST_USEFUL
    if cursor is not None:
        usefulness_text, key = cursor.texts(f"bullets {order}", 2)
        try:
            position = tuple_(float(usefulness_text), key)
        except ValueError:
            raise invalid_cursor() from None
        query = query.where(columns < position if is_descending else columns > position)
    if is_descending:
        return query.order_by(MemoryRow.usefulness.desc(), MemoryRow.key.desc())
    return query.order_by(MemoryRow.usefulness, MemoryRow.key)


class FoundBullet(NamedTuple):
    """A bullet as `BULLET_COLUMNS` returns it from a search."""

    seq: int
    scope_id: int
    usefulness: float
    key: str
    section: str
    title: str
    when_to_use: str
    content: str
    searchable_text: str
    helpful: int
    harmful: int
    pinned: bool
    neutral: int
    keywords: list[str] | None
    tags: list[str] | None
    status: str
    source_trajectory: str | None

    @property
    def id(self) -> str:
        """The key, under its name in a `Bullet`."""
        return self.key


BULLET_COLUMNS = SearchColumns(
    FoundBullet,
    {name: name for name in FoundBullet._fields}
    | {name: f"coalesce({name}, '')" for name in ("key", "section", "title", "when_to_use")}
    # Empty arrays take longer to read than the rest of a bullet.
    | {name: f"nullif({name}, '{{}}')" for name in ("keywords", "tags")}
    | {SOURCE_TRAJECTORY: f"metadata->>'{SOURCE_TRAJECTORY}'"},
)


_BULLETS = TypeAdapter(list[Bullet])
_COLUMNS = {"key", *Bullet.model_fields} - {"id", SOURCE_TRAJECTORY}
Columns = Mapping[str, Any] | StatementRow
"""The columns of a bullet by name."""


def to_bullet(row: MemoryRow | MemoryRecord) -> Bullet:
    columns = {name: getattr(row, name) for name in _COLUMNS}
    columns[SOURCE_TRAJECTORY] = row.metadata_.get(SOURCE_TRAJECTORY)
    return to_bullets([columns])[0]


def to_bullets(rows: Iterable[Columns]) -> list[Bullet]:
    """The bullets with these columns. An empty or missing column has the default of its field, and
    a null `searchable_text` is made of the other texts. Validates all in one call, which is the
    fastest way for playbooks of ten thousand bullets.
    """
    bullets: list[dict[str, Any]] = []
    for row in rows:
        bullet: dict[str, Any] = {"section": "", "content": "", "searchable_text": ""}
        bullet.update((name, value) for name, value in row.items() if value)
        if row["searchable_text"] is None:
            texts = (bullet.get("when_to_use", ""), bullet.get("title", ""), row["content"])
            bullet["searchable_text"] = join_search_text(*texts, bullet.get("keywords", []))
        bullets.append(bullet)
    return _BULLETS.validate_python(bullets)


def bullets_by_key(rows: Iterable[Columns]) -> dict[str, Bullet]:
    return {bullet.id: bullet for bullet in to_bullets(rows)}


def bullet_columns(bullet: Bullet) -> dict[str, Any]:
    """The columns of `memories` that hold a bullet, except its key and its metadata."""
    return {
        "section": bullet.section or None,
        "title": bullet.title or None,
        "when_to_use": bullet.when_to_use or None,
        "content": bullet.content,
        "searchable_text": bullet.searchable_text,
        "keywords": list(bullet.keywords),
        "tags": list(bullet.tags),
        "status": bullet.status,
        "pinned": bullet.pinned,
        "awaiting_confirmation": is_awaiting_confirmation(bullet),
        "helpful": bullet.helpful,
        "harmful": bullet.harmful,
        "neutral": bullet.neutral,
        "usefulness": usefulness(bullet.helpful, bullet.harmful),
    }


def bullet_metadata(bullet: Bullet, before: Mapping[str, Any]) -> dict[str, Any]:
    others = {name: value for name, value in before.items() if name != SOURCE_TRAJECTORY}
    return others | (
        {SOURCE_TRAJECTORY: bullet.source_trajectory} if bullet.source_trajectory else {}
    )


@dataclass(frozen=True)
class BulletDraft(MemoryDraft):
    """A bullet before it is stored. Its search text is that of the bullet."""

    bullet_text: str = ""

    @property
    def searchable_text(self) -> str:
        return self.bullet_text


def to_draft(bullet: Bullet, ref: PlaybookRef, author: ChangeAuthor) -> BulletDraft:
    return BulletDraft(
        kind=MemoryKind.BULLET,
        project_id=ref.project_id,
        content=bullet.content,
        address=ref.address,
        key=bullet.id,
        section=bullet.section or None,
        tags=bullet.tags,
        source="playbook",
        status=MemoryStatus(bullet.status),
        reason=author.reason,
        actor=author.actor,
        run_id=author.run_id,
        bullet_text=bullet.searchable_text,
    )


def is_active(bullet: Bullet | None) -> bool:
    return bullet is not None and bullet.status == "active"


def is_awaiting_confirmation(bullet: Bullet) -> bool:
    """Only a quarantined bullet waits: with another status, someone has decided."""
    return bullet.awaiting_confirmation and bullet.status == "quarantined"


def needs_reindex(before: Bullet | None, after: Bullet) -> bool:
    if not is_active(after):
        return False
    if before is None or not is_active(before):
        return True
    return any(getattr(before, name) != getattr(after, name) for name in INDEXED_FIELDS)


def sections_of(playbook: PlaybookRow) -> tuple[SectionDefinition, ...]:
    return parse_sections(playbook.sections)


def parse_sections(column: Iterable[Mapping[str, Any]]) -> tuple[SectionDefinition, ...]:
    return tuple(SectionDefinition.model_validate(section) for section in column)


def to_state(playbook: PlaybookRow, bullets: Mapping[str, Bullet]) -> PlaybookState:
    """The playbook's state with these bullets only. Key counters and aliases cover the other
    bullets, so deltas can be applied to a part of a playbook.
    """
    return PlaybookState(bullets, sections_of(playbook), playbook.key_counters, playbook.aliases)


def active_bullets_by_key(rows: Mapping[str, MemoryRow]) -> dict[str, Bullet]:
    return {key: to_bullet(row) for key, row in rows.items() if row.status != MemoryStatus.DELETED}
