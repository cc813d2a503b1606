"""Between bullets and the memories that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

import asyncpg

from apps.memory_api.core.errors import Invalid
from apps.memory_api.core.schemas import MAX_NAME, is_playbook_name
from apps.memory_api.memory.prepare import Draft
from apps.memory_api.memory.schemas import Kind, Status
from apps.memory_api.memory.scopes import Address
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.schemas import Bullet, join_searchable
from apps.memory_api.playbook.sections import SectionDefinition
from apps.memory_api.playbook.state import PlaybookState
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.playbook.usefulness import usefulness

TRAJECTORY = "source_trajectory"
"""Where in a memory's metadata spec 2's field of this name is kept."""
SERVED = ("searchable_text", "section", "tags", "confidence_score")
"""What of a bullet search reads: a change of any of them is served anew."""


@dataclass(frozen=True)
class Place:
    """Which playbook. Raises `Invalid` for a name that no playbook can have."""

    project_id: str
    name: str

    def __post_init__(self) -> None:
        if not is_playbook_name(self.name):
            raise Invalid(f"'{self.name[:MAX_NAME]}' is not a name for a playbook.", field="name")

    @property
    def address(self) -> Address:
        return (self.project_id, "playbook", self.name)


@dataclass(frozen=True)
class Author:
    """Who changes a playbook, why, and in which run."""

    actor: str | None = None
    reason: str | None = None
    run_id: UUID | None = None
    decides: bool = True
    """Whether it needs nobody's consent where the playbook asks for review: an admin key's changes,
    and the service's own.
    """


class BulletColumns(Protocol):
    """What of a row makes a bullet: a `Memory`, or a row of a statement with the same names."""

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


class BulletRow(asyncpg.Record):
    """A row of `as_of.sql`, its columns as attributes: what is empty, zero or usual is None."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def metadata_(self) -> dict[str, Any]:
        return {TRAJECTORY: self["source_trajectory"]}


def to_bullet(row: BulletColumns) -> Bullet:
    """`searchable_text` None means the one that follows from the other texts."""
    words = (row.keywords and list(row.keywords), row.when_to_use, row.title)
    state = (row.tags and list(row.tags), row.status, row.pinned, row.metadata_.get(TRAJECTORY))
    counters = (row.helpful, row.harmful, row.neutral)
    columns = (row.key, row.section, row.content, row.searchable_text, *words, *state, *counters)
    return to_bullets([(*columns, None, 0)])[0]


def keyed(rows: Iterable[BulletRow]) -> dict[str, Bullet]:
    return {bullet.id: bullet for bullet in to_bullets(rows)}


FIELDS = set(Bullet.model_fields)
"""A bullet from a row has every field set. Nothing takes one out of such a set: one serves all."""


def to_bullets(rows: Iterable[Iterable[Any]]) -> list[Bullet]:
    """Rows with the columns of `as_of.sql` as bullets: what `Bullet.model_construct` makes of them,
    in a fifth of its time, for playbooks of ten thousand. Nothing is validated: what is in a row
    was.
    """
    bullets: list[Bullet] = []
    make, fill = object.__new__, object.__setattr__
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
        source_trajectory,
        helpful,
        harmful,
        neutral,
        _place,
        _n,
    ) in rows:
        words = searchable_text
        if words is None:
            plain = not (when_to_use or title or keywords)
            words = content if plain else _joined(when_to_use, title, content, keywords)
        bullet = make(Bullet)
        values: dict[str, Any] = {
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
        }
        fill(bullet, "__dict__", values)
        fill(bullet, "__pydantic_fields_set__", FIELDS)
        fill(bullet, "__pydantic_extra__", None)
        fill(bullet, "__pydantic_private__", None)
        bullets.append(bullet)
    return bullets


def _joined(
    when_to_use: str | None, title: str | None, content: str, keywords: list[str] | None
) -> str:
    return join_searchable(when_to_use or "", title or "", content, keywords or [])


def bullet_columns(bullet: Bullet) -> dict[str, Any]:
    """The columns of `memories` that a bullet fills, but for its key and its metadata."""
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
        "helpful": bullet.helpful,
        "harmful": bullet.harmful,
        "neutral": bullet.neutral,
        "usefulness": usefulness(bullet.helpful, bullet.harmful),
    }


def metadata_of(bullet: Bullet, before: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in before.items() if name != TRAJECTORY}
    return kept | ({TRAJECTORY: bullet.source_trajectory} if bullet.source_trajectory else {})


@dataclass(frozen=True)
class BulletDraft(Draft):
    """A bullet to be written; its search text may be its own."""

    own_text: str = ""

    @property
    def searchable_text(self) -> str:
        return self.own_text


def draft_of(bullet: Bullet, place: Place, author: Author) -> BulletDraft:
    return BulletDraft(
        kind=Kind.BULLET,
        project_id=place.project_id,
        content=bullet.content,
        address=place.address,
        key=bullet.id,
        section=bullet.section or None,
        tags=bullet.tags,
        source="playbook",
        status=Status(bullet.status),
        reason=author.reason,
        actor=author.actor,
        run_id=author.run_id,
        own_text=bullet.searchable_text,
    )


def is_served(bullet: Bullet | None) -> bool:
    return bullet is not None and bullet.status == "active"


def needs_text(before: Bullet | None, after: Bullet) -> bool:
    """Whether search must be given this bullet anew."""
    if not is_served(after):
        return False
    if before is None or not is_served(before):
        return True
    return any(getattr(before, name) != getattr(after, name) for name in SERVED)


def sections_of(playbook: PlaybookRow) -> tuple[SectionDefinition, ...]:
    return sections_in(playbook.sections)


def sections_in(column: Iterable[Mapping[str, Any]]) -> tuple[SectionDefinition, ...]:
    """The sections that a playbook's row holds."""
    return tuple(SectionDefinition.model_validate(section) for section in column)


def state_of(playbook: PlaybookRow, bullets: Mapping[str, Bullet]) -> PlaybookState:
    """What deltas act on, of these bullets alone: counters and aliases stand for the others."""
    return PlaybookState(bullets, sections_of(playbook), playbook.last_numbers, playbook.aliases)


def by_key(rows: Mapping[str, Memory]) -> dict[str, Bullet]:
    """The bullets among these rows that are not deleted."""
    return {key: to_bullet(row) for key, row in rows.items() if row.status != Status.DELETED}
