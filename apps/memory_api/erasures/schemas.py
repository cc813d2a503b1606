"""Erasures on the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import Field, model_validator

from memory_api.core.schemas import (
    Metadata,
    Page,
    RequestModel,
    ResponseModel,
    UtcDatetime,
    with_examples,
)


class ErasureTarget(StrEnum):
    """What is erased. A person is a text in `metadata.subject` of traces and memories."""

    MEMORY = "memory"
    TRACE = "trace"
    PERSON = "person"
    TENANT = "tenant"


class CreateErasureRequest(RequestModel):
    """What to erase for good."""

    target_kind: ErasureTarget
    target_id: str = Field(
        min_length=1,
        max_length=500,
        description="ID of the memory or trace, the subject of the person, or the name of the"
        " tenant (with an operator key, any tenant).",
    )
    reason: str | None = Field(default=None, max_length=2_000, description="Part of the audit log.")

    @model_validator(mode="after")
    def _check_id(self) -> CreateErasureRequest:
        if self.target_kind in (ErasureTarget.MEMORY, ErasureTarget.TRACE):
            UUID(self.target_id)
        return self


_ERASURE: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa09",
    "target_kind": "trace",
    "target_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04",
    "state": "done",
    "reason": "Requested by the customer.",
    "actor": "key:0190d2c4-6f5e-7a31-9c11-3a55d6f0aa02",
    "run_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa10",
    "counts": {"traces": 1, "memories": 3, "bullets": 1},
    "affected_bullets": [],
    "created_at": "2026-11-21T09:00:00Z",
    "finished_at": "2026-11-21T09:00:01Z",
}


class AffectedBullet(ResponseModel):
    """A bullet that was learned from erased and other sources. Check its text."""

    project_id: str
    playbook: str
    key: str


class Erasure(ResponseModel):
    """An erasure and its result."""

    model_config = with_examples(_ERASURE)

    id: UUID
    target_kind: ErasureTarget
    target_id: str = Field(description="For a person `sha256:` and the hash of the subject.")
    state: str = Field(description="`queued` or `done`.")
    reason: str | None
    actor: str | None
    run_id: UUID | None = Field(description="The run that erases.")
    counts: Metadata = Field(
        description="Erased items by kind. Only zeros: no data has this ID or subject."
    )
    affected_bullets: list[AffectedBullet] = Field(
        description="Bullets with other sources too, which stay. Check their texts."
    )
    created_at: UtcDatetime
    finished_at: UtcDatetime | None


class ErasurePage(Page[Erasure]):
    """One page of erasures, newest first."""
