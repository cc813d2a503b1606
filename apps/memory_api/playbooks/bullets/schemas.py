"""Bullets on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AliasChoices, Field

from memory_api.core.schemas import (
    Name,
    NotBlank,
    Page,
    ResponseModel,
    Tags,
    UtcDatetime,
    Words,
    with_examples,
)
from memory_api.memories.schemas import SettableStatus
from memory_api.playbooks.models import MAX_TEXT, Bullet
from memory_api.playbooks.schemas import (
    BULLET_EXAMPLE,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    ProjectRequest,
    Reason,
    Text,
    WhenToUse,
)


class CreateBulletRequest(ProjectRequest):
    """A bullet to create. The service assigns its key."""

    content: Annotated[str, NotBlank] = Field(
        min_length=1, max_length=MAX_TEXT, validation_alias=AliasChoices("content", "text")
    )
    section: Name = Field(default="OTHERS", description="Name or slug of a section.")
    when_to_use: WhenToUse = Field(
        default="", description="The condition under which the bullet applies."
    )
    title: Name | Literal[""] = ""
    keywords: Words = Field(default_factory=list)
    tags: Tags = Field(default_factory=list)
    pinned: bool = Field(default=False, description="True: learning may not change the bullet.")
    reason: Reason | None = None


class UpdateBulletRequest(ProjectRequest):
    """Changes of a bullet. Only the fields that are sent change."""

    content: Annotated[Text, NotBlank] = Field(default_factory=str)
    section: Name = Field(default_factory=str)
    when_to_use: WhenToUse = Field(default_factory=str)
    title: Name | Literal[""] = Field(default_factory=str)
    keywords: Words = Field(default_factory=list)
    tags: Tags = Field(default_factory=list)
    status: SettableStatus = Field(default_factory=lambda: "active")
    pinned: bool = Field(default_factory=bool)
    reason: Reason | None = None

    def fields(self) -> dict[str, Any]:
        sent = self.model_fields_set - {"reason", "tenant_id", "project_id"}
        return {name: getattr(self, name) for name in sent}


class StoredBullet(Bullet):
    """A bullet with its usefulness and version."""

    model_config = Bullet.model_config | with_examples(
        BULLET_EXAMPLE
        | {
            "memory_id": EXAMPLE_ID,
            "usefulness": 0.473,
            "version": 7,
            "created_at": EXAMPLE_TIME,
            "updated_at": EXAMPLE_TIME,
        }
    )

    memory_id: UUID
    usefulness: float = Field(
        description="5th percentile of Beta(1 + helpful, 1 + harmful), 0 to 1."
    )
    version: int | None = Field(description="Version of the playbook that last changed it.")
    created_at: UtcDatetime
    updated_at: UtcDatetime


class BulletPage(Page[StoredBullet]):
    """One page of bullets."""


class BulletReceipt(ResponseModel):
    """A bullet after a write."""

    version: int = Field(description="Version of the playbook after the write.")
    bullet: Bullet
    sanitized: bool = Field(
        default=False, description="True if unstorable characters or secrets were replaced."
    )
