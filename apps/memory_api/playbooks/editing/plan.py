"""The plan of a change, its conditions and its result. Nothing here writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.playbooks.bullet_rows import is_active, needs_reindex
from memory_api.playbooks.errors import (
    PlaybookFull,
    PlaybookNotFound,
    ReviewRequired,
    VersionMismatch,
)
from memory_api.playbooks.models import Bullet, DeltaResult
from memory_api.playbooks.ref import ChangeAuthor
from memory_api.playbooks.sections import SectionDefinition
from memory_api.playbooks.state import PlaybookState
from memory_api.playbooks.tables import PlaybookRow

DeltaSources = Mapping[int, Sequence[UUID]]
"""Index of a delta → the memories (insights, strategies) it was derived from."""


@dataclass(frozen=True)
class BulletChange:
    """A bullet before and after a change. None if it did not exist."""

    key: str
    before: Bullet | None
    after: Bullet | None


@dataclass(frozen=True)
class VersionDiff:
    """The changes from version `first` to `last`. `last` may be the earlier one."""

    first: int
    last: int
    changed: Sequence[BulletChange]
    changed_count: int
    """Bullets that differ. `changed` may have only the first of them."""
    sections_before: Sequence[SectionDefinition]
    sections_after: Sequence[SectionDefinition]


@dataclass(frozen=True)
class ChangeResult:
    """`version` is that of the playbook after the change. `changed` is False if nothing was
    written.
    """

    version: int
    changed: bool
    active_count: int
    """Active bullets after the change."""
    results: Sequence[DeltaResult] = ()
    diff: VersionDiff | None = None
    """The changes that a dry run would write."""


@dataclass(frozen=True)
class ChangePlan:
    """The change of a playbook. `before` and `after` hold the bullets in question, by key. A bullet
    that is missing in `after` is deleted.
    """

    change_type: str
    before: Mapping[str, Bullet]
    after: PlaybookState
    results: Sequence[DeltaResult] = ()
    positions: Mapping[str, int] = field(default_factory=dict[str, int])
    """Key of a bullet → its position in an imported file."""
    sources: Mapping[str, Sequence[UUID]] = field(default_factory=dict[str, Sequence[UUID]])
    """Key of a bullet → the memories it was derived from."""
    absorbed: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Key of a survivor → the keys that were merged into it."""
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key of a bullet → the reason of its change, if it differs from the reason of the author."""
    created_at: datetime | None = None
    """When an imported playbook was created; None does not change the time."""
    deletes_playbook: bool = False
    changed_settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings that `after_write` changes, which makes a version even without other changes."""
    after_write: Callable[[ChangeResult], Awaitable[None]] | None = None
    """Called once with the result, in the transaction that writes the version."""

    @property
    def deleted_keys(self) -> list[str]:
        return [key for key in self.before if key not in self.after.bullets]

    @property
    def changed(self) -> dict[str, Bullet]:
        return {k: b for k, b in self.after.bullets.items() if self.before.get(k) != b}

    @property
    def active_count_change(self) -> int:
        return _count_active(self.after.bullets) - _count_active(self.before)

    @property
    def bullets_to_embed(self) -> dict[str, Bullet]:
        bullets = self.after.bullets.items()
        return {b.searchable_text: b for k, b in bullets if needs_reindex(self.before.get(k), b)}


def _count_active(bullets: Mapping[str, Bullet]) -> int:
    return sum(is_active(bullet) for bullet in bullets.values())


ChangePlanner = Callable[[AsyncSession, PlaybookRow], Awaitable[ChangePlan]]
"""Loads what it needs and decides. Called again if the rows may have changed since."""


@dataclass(frozen=True)
class ChangeConditions:
    if_match: int | None = None
    create_missing: bool = False
    """Create a missing playbook."""
    restore_deleted: bool = False
    """Allow a deleted playbook, with the content it had."""
    dry_run: bool = False
    """Return what would change and write nothing."""

    def check(self, playbook: PlaybookRow | None, author: ChangeAuthor) -> None:
        """Raises `PlaybookNotFound`, `VersionMismatch`, `ReviewRequired`."""
        missing = playbook is None or (playbook.deleted_at is not None and not self.restore_deleted)
        if missing and not self.create_missing:
            raise PlaybookNotFound
        version = 0 if playbook is None else playbook.version
        if self.if_match is not None and self.if_match != version:
            raise VersionMismatch(
                f"`If-Match` does not match: the playbook is at version {version}.", version=version
            )
        if (
            playbook is not None
            and playbook.review_mode == "required"
            and not author.may_bypass_review
        ):
            raise ReviewRequired


MAX_ACTIVE_BULLETS = 20_000
"""Of any playbook: one transaction can replace or delete so many within HANSEI_DATABASE_TIMEOUT."""


def check_capacity(playbook: PlaybookRow, plan: ChangePlan) -> None:
    """Raises `PlaybookFull` for a plan that adds active bullets beyond `max_bullets`, or beyond
    `MAX_ACTIVE_BULLETS`.
    """
    change = plan.active_count_change
    if change > 0 and playbook.active_count + change > MAX_ACTIVE_BULLETS:
        raise PlaybookFull(
            f"A playbook cannot have more than {MAX_ACTIVE_BULLETS:,} active bullets.",
            max_bullets=MAX_ACTIVE_BULLETS,
        )
    limit = playbook.max_bullets
    if limit is not None and change > 0 and playbook.active_count + change > limit:
        raise PlaybookFull(
            f"A playbook with `max_bullets` = {limit} cannot have more active bullets.",
            max_bullets=limit,
        )
