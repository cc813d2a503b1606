"""Between bullets and the memories that hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from apps.memory_api.core.errors import Invalid
from apps.memory_api.core.schemas import MAX_NAME, is_playbook_name
from apps.memory_api.memory.prepare import Draft
from apps.memory_api.memory.schemas import Kind, Status
from apps.memory_api.memory.scopes import Address
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.schemas import Bullet
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


@dataclass(slots=True)
class PastBullet:
    """A bullet at a version: the columns of `as_of.sql`, in their order."""

    key: str
    section: str | None
    content: str
    keywords: Any
    when_to_use: str | None
    title: str | None
    tags: Any
    status: str
    pinned: bool
    searchable_text: str | None
    metadata_: Any
    helpful: int
    harmful: int
    neutral: int

    def __post_init__(self) -> None:
        self.keywords = self.keywords or []
        self.tags = self.tags or []
        # the driver hands over jsonb as text
        self.metadata_ = json.loads(self.metadata_) if self.metadata_ else {}


def to_bullet(row: BulletColumns) -> Bullet:
    """`searchable_text` None means the one that follows from the other texts.

    Nothing is validated: what is in a row was.
    """
    bullet = Bullet.model_construct(
        id=row.key,
        section=row.section or "",
        content=row.content,
        keywords=list(row.keywords),
        helpful=row.helpful,
        harmful=row.harmful,
        neutral=row.neutral,
        source_trajectory=row.metadata_.get(TRAJECTORY, ""),
        when_to_use=row.when_to_use or "",
        title=row.title or "",
        tags=list(row.tags),
        status=row.status,
        pinned=row.pinned,
        searchable_text=row.searchable_text,
    )
    if row.searchable_text is None:
        bullet.searchable_text = bullet.default_searchable_text()
    return bullet


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
    return tuple(SectionDefinition.model_validate(section) for section in playbook.sections)


def state_of(playbook: PlaybookRow, bullets: Mapping[str, Bullet]) -> PlaybookState:
    """What deltas act on, of these bullets alone: counters and aliases stand for the others."""
    return PlaybookState(bullets, sections_of(playbook), playbook.last_numbers, playbook.aliases)


def by_key(rows: Mapping[str, Memory]) -> dict[str, Bullet]:
    """The bullets among these rows that are not deleted."""
    return {key: to_bullet(row) for key, row in rows.items() if row.status != Status.DELETED}
