"""Converts bullets to and from rows of `memories`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from pydantic import TypeAdapter
from sqlalchemy import Select, tuple_

from memory_api.core.pagination import Cursor, invalid_cursor
from memory_api.core.statements import StatementRow
from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.memories.search.query import SearchColumns
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
    """The position after a bullet in a list of this order."""
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


class BulletColumns(Protocol):
    """The columns of a bullet: a `MemoryRow`, or a result row with the same column names."""

    key: Any
    section: Any
    content: Any
    searchable_text: Any
    keywords: Any
    helpful: Any
    harmful: Any
    neutral: Any
    when_to_use: Any
    title: Any
    tags: Any
    status: Any
    pinned: Any
    metadata_: Any

    @property
    def awaiting_confirmation(self) -> Any: ...


class BulletRecord(StatementRow):
    """A row of `bullets_as_of`. Empty, zero and default values are None."""

    @property
    def metadata_(self) -> dict[str, Any]:
        return {SOURCE_TRAJECTORY: self["source_trajectory"]}


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

    @property
    def metadata_(self) -> dict[str, Any]:
        return {SOURCE_TRAJECTORY: self.source_trajectory}

    @property
    def awaiting_confirmation(self) -> bool:
        """A search finds active bullets, and only quarantined ones wait."""
        return False


BULLET_COLUMNS = SearchColumns(
    FoundBullet,
    {name: name for name in FoundBullet._fields}
    | {name: f"coalesce({name}, '')" for name in ("key", "section", "title", "when_to_use")}
    # Empty arrays take longer to read than the rest of a bullet.
    | {name: f"nullif({name}, '{{}}')" for name in ("keywords", "tags")}
    | {SOURCE_TRAJECTORY: f"metadata->>'{SOURCE_TRAJECTORY}'"},
)


def to_bullet(row: BulletColumns | FoundBullet) -> Bullet:
    return to_bullet_list([row])[0]


def to_bullet_list(rows: Iterable[BulletColumns | FoundBullet]) -> list[Bullet]:
    """A `searchable_text` of None means the default one."""
    return to_bullets(
        (
            row.key,
            row.section,
            row.content,
            row.searchable_text,
            row.keywords and list(row.keywords),
            row.when_to_use,
            row.title,
            row.tags and list(row.tags),
            row.status,
            row.pinned,
            row.awaiting_confirmation,
            row.metadata_.get(SOURCE_TRAJECTORY),
            row.helpful,
            row.harmful,
            row.neutral,
            None,
            0,
        )
        for row in rows
    )


def bullets_by_key(rows: Iterable[BulletRecord]) -> dict[str, Bullet]:
    return {bullet.id: bullet for bullet in to_bullets(rows)}


_BULLETS = TypeAdapter(list[Bullet])


def to_bullets(rows: Iterable[Iterable[Any]]) -> list[Bullet]:
    """Rows with the columns of the query `as_of` as bullets. Validates all of them in one call,
    which is the fastest way for playbooks of ten thousand bullets.
    """
    bullets: list[dict[str, Any]] = []
    for (
        key,
        section,
        content,
        searchable_text,
        keywords,
        when_to_use,
        title,
        tags,
        status,
        pinned,
        awaiting_confirmation,
        source_trajectory,
        helpful,
        harmful,
        neutral,
        _position,
        _seq,
    ) in rows:
        words = searchable_text
        if words is None:
            is_plain = not (when_to_use or title or keywords)
            words = (
                content
                if is_plain
                else join_search_text(when_to_use or "", title or "", content, keywords or [])
            )
        bullets.append(
            {
                "id": key,
                "section": section or "",
                "content": content,
                "searchable_text": words,
                "keywords": keywords or [],
                "helpful": helpful or 0,
                "harmful": harmful or 0,
                "source_trajectory": source_trajectory or "",
                "neutral": neutral or 0,
                "when_to_use": when_to_use or "",
                "title": title or "",
                "tags": tags or [],
                "status": status or "active",
                "pinned": pinned or False,
                "awaiting_confirmation": awaiting_confirmation or False,
            }
        )
    return _BULLETS.validate_python(bullets)


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
    """Whether the bullet must be indexed again."""
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
    """The bullets among these rows that are not deleted."""
    return {key: to_bullet(row) for key, row in rows.items() if row.status != MemoryStatus.DELETED}
