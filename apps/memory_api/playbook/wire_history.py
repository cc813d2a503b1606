"""History and provenance on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from apps.memory_api.core.schemas import Model, Time
from apps.memory_api.playbook.formats import MAX_COUNT
from apps.memory_api.playbook.history import Diff, Moment
from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.playbook.sections import SectionDefinition
from apps.memory_api.playbook.wire import ProjectBody, Reason


class VersionView(Model):
    version: int
    change: str
    added: int
    updated: int
    removed: int
    active: int
    reason: str | None
    actor: str | None
    run_id: UUID | None
    created_at: Time


class ChangedBullet(Model):
    """One bullet on both ends."""

    key: str
    before: Bullet
    after: Bullet


class DiffAnswer(Model):
    from_version: int
    to_version: int
    added: list[Bullet]
    removed: list[Bullet]
    changed: list[ChangedBullet]
    sections_added: list[SectionDefinition]
    sections_removed: list[SectionDefinition]


def show_diff(diff: Diff) -> DiffAnswer:
    before, after = diff.sections_before, diff.sections_after
    return DiffAnswer(
        from_version=diff.first,
        to_version=diff.last,
        added=[c.after for c in diff.changed if c.after and not c.before],
        removed=[c.before for c in diff.changed if c.before and not c.after],
        changed=[
            ChangedBullet(key=c.key, before=c.before, after=c.after)
            for c in diff.changed
            if c.before and c.after
        ],
        sections_added=[section for section in after if section not in before],
        sections_removed=[section for section in before if section not in after],
    )


class RestoreIn(ProjectBody):
    """A version or a time."""

    version: int | None = Field(None, ge=0, le=MAX_COUNT)
    time: Time | None = None
    reason: Reason | None = None

    def moment(self) -> Moment | None:
        """None when it does not say exactly one of the two."""
        given: list[int | datetime] = [m for m in (self.version, self.time) if m is not None]
        return given[0] if len(given) == 1 else None


class RestoreAnswer(Model):
    version: int
    changed: bool


class Origin(Model):
    """One link on the way from a bullet to the events it was learnt from."""

    source_id: UUID
    relation: str
    target_kind: str
    target_id: UUID
    depth: int
    kind: str | None
    key: str | None
    content: str | None
    trace_id: UUID | None
    task_description: str | None
    outcome: str | None
    source_event_ids: list[str]
    events: list[dict[str, Any]]


class Provenance(Model):
    key: str
    memory_id: UUID
    links: list[Origin]
