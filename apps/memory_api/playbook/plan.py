"""What is to become of a playbook, before anything is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.playbook.errors import Full, NoPlaybook, Stale, UnderReview
from apps.memory_api.playbook.rows import Author, is_served, needs_text
from apps.memory_api.playbook.schemas import Bullet, DeltaResult
from apps.memory_api.playbook.sections import SectionDefinition
from apps.memory_api.playbook.state import PlaybookState
from apps.memory_api.playbook.tables import PlaybookRow


@dataclass(frozen=True)
class Plan:
    """What a playbook becomes. `before` and `after` hold the bullets looked at, by key: one that is
    missing from `after` is deleted.
    """

    change: str
    before: Mapping[str, Bullet]
    after: PlaybookState
    results: Sequence[DeltaResult] = ()
    places: Mapping[str, int] = field(default_factory=dict[str, int])
    sources: Mapping[str, Sequence[UUID]] = field(default_factory=dict[str, Sequence[UUID]])
    """Key of a bullet → the memories it was derived from."""
    absorbed: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Key of a survivor → the keys merged into it."""
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key of a bullet → why it changes, where that is not the author's reason for all."""
    deletes_playbook: bool = False
    settle: Callable[[Outcome], Awaitable[None]] | None = None
    """Called once, with what was written, in the transaction that writes."""

    @property
    def gone(self) -> list[str]:
        return [key for key in self.before if key not in self.after.bullets]

    @property
    def changed(self) -> dict[str, Bullet]:
        """The bullets that are new or other than before."""
        return {k: b for k, b in self.after.bullets.items() if self.before.get(k) != b}

    @property
    def growth(self) -> int:
        """How many active bullets more."""
        return _active(self.after.bullets) - _active(self.before)

    @property
    def texts(self) -> dict[str, Bullet]:
        """What search must be given, by search text."""
        changed = self.after.bullets.items()
        return {b.searchable_text: b for k, b in changed if needs_text(self.before.get(k), b)}


def _active(bullets: Mapping[str, Bullet]) -> int:
    return sum(is_served(bullet) for bullet in bullets.values())


Planner = Callable[[AsyncSession, PlaybookRow], Awaitable[Plan]]
"""Reads what it needs, decides. Called again when the rows may have changed since."""


@dataclass(frozen=True)
class Changed:
    """One bullet on both ends; None where it was not there."""

    key: str
    before: Bullet | None
    after: Bullet | None


@dataclass(frozen=True)
class Diff:
    """What made version `first` into `last`; turned round when `last` is the earlier one."""

    first: int
    last: int
    changed: Sequence[Changed]
    sections_before: Sequence[SectionDefinition]
    sections_after: Sequence[SectionDefinition]


@dataclass(frozen=True)
class Outcome:
    """`version` is the playbook's now; `changed` is False when there was nothing to write."""

    version: int
    changed: bool
    active: int
    """Bullets that are active then."""
    results: Sequence[DeltaResult] = ()
    diff: Diff | None = None
    """Of a dry run: what would be changed."""


@dataclass(frozen=True)
class Terms:
    """Under which conditions a change may be made."""

    if_match: int | None = None
    create: bool = False
    """Make the playbook when there is none."""
    revive: bool = False
    """Also one that was deleted, as it was left."""
    dry: bool = False
    """Say what would happen and write nothing."""

    def check(self, playbook: PlaybookRow | None, author: Author) -> None:
        """Raises `NoPlaybook`, `Stale`, `UnderReview`."""
        gone = playbook is None or (playbook.deleted_at is not None and not self.revive)
        if gone and not self.create:
            raise NoPlaybook
        version = 0 if playbook is None else playbook.version
        if self.if_match is not None and self.if_match != version:
            raise Stale(f"The playbook is at version {version}.", version=version)
        if playbook is not None and playbook.review == "required" and not author.decides:
            raise UnderReview


def check_room(playbook: PlaybookRow, plan: Plan) -> None:
    """Raises `Full` for a plan that makes more of what is enough."""
    most = playbook.max_bullets
    if most is not None and plan.growth > 0 and playbook.active + plan.growth > most:
        raise Full(f"This playbook may have {most} active bullets.", max_bullets=most)
