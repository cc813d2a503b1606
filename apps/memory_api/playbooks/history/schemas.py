"""Versions, differences and provenance on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AliasChoices, BeforeValidator, Field

from memory_api.core.schemas import Page, ResponseModel, UtcDatetime, with_examples
from memory_api.playbooks.editing.plan import VersionDiff
from memory_api.playbooks.formats.serialization import MAX_COUNT
from memory_api.playbooks.history.versions import VersionOrTime
from memory_api.playbooks.models import Bullet
from memory_api.playbooks.schemas import ProjectRequest, Reason
from memory_api.playbooks.sections import SectionDefinition

_ID = "019a4d2e-0000-7000-8000-000000000001"
_BULLET = {"id": "mis-00001", "section": "MISTAKES TO AVOID", "content": "Never retry blindly."}


class PlaybookVersion(ResponseModel):
    """One change of a playbook and its author."""

    model_config = ResponseModel.model_config | with_examples(
        {
            "version": 7,
            "change_type": "deltas",
            "added_count": 1,
            "updated_count": 0,
            "removed_count": 2,
            "active_bullet_count": 42,
            "reason": "merged what said the same",
            "actor": f"key:{_ID}",
            "run_id": None,
            "created_at": "2026-11-21T09:30:00Z",
        }
    )

    version: int
    change_type: str = Field(description="Kind of change, such as `deltas`, `import` or `restore`.")
    added_count: int = Field(description="Number of added bullets.")
    updated_count: int = Field(description="Number of changed bullets.")
    removed_count: int = Field(description="Number of removed bullets.")
    active_bullet_count: int = Field(
        validation_alias=AliasChoices("active_count", "active_bullet_count"),
        description="Number of active bullets after the change.",
    )
    reason: str | None
    actor: str | None = Field(description="`key:` and the ID of an API key, or `run`.")
    run_id: UUID | None = Field(description="The run that made the change.")
    created_at: UtcDatetime


class PlaybookVersionPage(Page[PlaybookVersion]):
    """One page of versions, newest first."""


class BulletVersion(ResponseModel):
    """A bullet after one change, with the author and the reason of the change."""

    model_config = ResponseModel.model_config | with_examples(
        {
            "revision": 3,
            "playbook_version": 12,
            "change_type": "merged",
            "merged_into": "mis-00002",
            "section": "MISTAKES TO AVOID",
            "title": None,
            "when_to_use": None,
            "content": "Never retry blindly.",
            "tags": [],
            "status": "deleted",
            "pinned": False,
            "reason": "Merged into mis-00002. Both say to check the state first.",
            "actor": "curator",
            "run_id": _ID,
            "created_at": "2026-11-21T09:30:00Z",
        }
    )

    revision: int = Field(description="From 1.")
    playbook_version: int | None = Field(description="Version of the playbook with this change.")
    change_type: str = Field(
        description="`created`, `changed`, `merged`, `quarantined`, `released`, `archived`, "
        "`deleted` or `restored`."
    )
    merged_into: str | None = Field(description="Key of the bullet that replaced it.")
    section: str | None
    title: str | None
    when_to_use: str | None
    content: str
    tags: list[str]
    status: str
    pinned: bool
    reason: str | None = Field(description="Null if nobody gave one.")
    actor: str | None = Field(
        description="`key:` and the ID of an API key, `run`, or `curator` for the service."
    )
    run_id: UUID | None = Field(description="The run that made the change.")
    created_at: UtcDatetime


class BulletVersionPage(Page[BulletVersion]):
    """One page of the versions of a bullet, oldest first."""


class ChangedBullet(ResponseModel):
    """A bullet in both versions."""

    key: str
    before: Bullet
    after: Bullet


class PlaybookDiff(ResponseModel):
    """The differences between two versions."""

    model_config = ResponseModel.model_config | with_examples(
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


def diff_response(diff: VersionDiff) -> PlaybookDiff:
    before, after = diff.sections_before, diff.sections_after
    return PlaybookDiff(
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


class ReplacePlaybookResponse(ResponseModel):
    """The result of replacing a playbook."""

    version: int
    active_bullet_count: int
    notes: list[str] = Field(description="What was left out of the body, or added to it.")
    applied: bool = Field(description="False for a dry run.")
    diff: PlaybookDiff | None = Field(default=None, description="What a dry run would change.")


class RestorePlaybookRequest(ProjectRequest):
    """The version or time to restore. Set exactly one."""

    version: int | None = Field(default=None, ge=0, le=MAX_COUNT)
    time: UtcDatetime | None = None
    reason: Reason | None = None

    def moment(self) -> VersionOrTime | None:
        """The version or the time; None if not exactly one of them is set."""
        given: list[int | datetime] = [m for m in (self.version, self.time) if m is not None]
        return given[0] if len(given) == 1 else None


class RestorePlaybookResponse(ResponseModel):
    """The result of a restore."""

    version: int
    changed: bool = Field(description="False if the playbook already had this content.")
    applied: bool = Field(description="False for a dry run.")
    diff: PlaybookDiff | None = Field(default=None, description="What a dry run would change.")


def _null_to_empty(value: Any) -> Any:
    return [] if value is None else value


class ProvenanceLink(ResponseModel):
    """One link from a bullet towards the events that it was learned from."""

    source_id: UUID
    relation: str
    target_kind: str
    target_id: UUID
    depth: int = Field(description="Number of links from the bullet, from 1.")
    kind: str | None = None
    key: str | None = None
    content: str | None = None
    trace_id: UUID | None = None
    task_description: str | None = None
    outcome: str | None = None
    source_event_ids: Annotated[list[str], BeforeValidator(_null_to_empty)]
    events: Annotated[list[dict[str, Any]], BeforeValidator(_null_to_empty)]


class Provenance(ResponseModel):
    """All links from a bullet to the events that it was learned from."""

    model_config = ResponseModel.model_config | with_examples(
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
    links: list[ProvenanceLink]
