"""History and provenance on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from apps.memory_api.core.openapi import shown
from apps.memory_api.core.schemas import Model, Time
from apps.memory_api.playbook.formats import MAX_COUNT
from apps.memory_api.playbook.history import Moment
from apps.memory_api.playbook.plan import Diff
from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.playbook.sections import SectionDefinition
from apps.memory_api.playbook.wire import APPLY, ProjectBody, Reason

_ID = "019a4d2e-0000-7000-8000-000000000001"
_BULLET = {"id": "mis-00001", "section": "MISTAKES TO AVOID", "content": "Never retry blindly."}


class VersionView(Model):
    """One change of a playbook."""

    model_config = Model.model_config | shown(
        {
            "version": 7,
            "change": "deltas",
            "added": 1,
            "updated": 0,
            "removed": 2,
            "active": 42,
            "reason": "merged what said the same",
            "actor": f"key:{_ID}",
            "run_id": None,
            "created_at": "2026-11-21T09:30:00Z",
        }
    )

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
    """What made one version into the other."""

    model_config = Model.model_config | shown(
        {
            "from_version": 6,
            "to_version": 7,
            "added": [_BULLET | {"confidence_score": 0.5}],
            "removed": [],
            "changed": [],
            "sections_added": [],
            "sections_removed": [],
        }
    )

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


class Imported(Model):
    """`notes` say what of the text was not kept or had to be made up. Of a dry run, `diff` is what
    would change.
    """

    version: int
    active: int
    notes: list[str]
    applied: bool
    diff: DiffAnswer | None = None


class RestoreIn(ProjectBody):
    """A version or a time."""

    version: int | None = Field(None, ge=0, le=MAX_COUNT)
    time: Time | None = None
    apply: bool = Field(True, description=APPLY)
    reason: Reason | None = None

    def moment(self) -> Moment | None:
        """None when it does not say exactly one of the two."""
        given: list[int | datetime] = [m for m in (self.version, self.time) if m is not None]
        return given[0] if len(given) == 1 else None


class RestoreAnswer(Model):
    """Of a dry run, `diff` is what would change."""

    version: int
    changed: bool
    applied: bool
    diff: DiffAnswer | None = None


class Origin(Model):
    """One link on the way from a bullet to the events it was learnt from."""

    source_id: UUID
    relation: str
    target_kind: str
    target_id: UUID
    depth: int
    kind: str | None = None
    key: str | None = None
    content: str | None = None
    trace_id: UUID | None = None
    task_description: str | None = None
    outcome: str | None = None
    source_event_ids: list[str]
    events: list[dict[str, Any]]


class Provenance(Model):
    """Every link on the way from a bullet to the events it was learnt from."""

    model_config = Model.model_config | shown(
        {
            "key": "mis-00001",
            "memory_id": _ID,
            "links": [
                {
                    "source_id": _ID,
                    "relation": "derived_from",
                    "target_kind": "memory",
                    "target_id": _ID,
                    "depth": 1,
                    "kind": "insight",
                    "key": None,
                    "content": "A payment that timed out had gone through.",
                    "trace_id": _ID,
                    "task_description": None,
                    "outcome": None,
                    "source_event_ids": ["e2"],
                    "events": [],
                }
            ],
        }
    )

    key: str
    memory_id: UUID
    links: list[Origin]
