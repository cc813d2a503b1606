"""Playbooks, deltas and proposals on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from pydantic import (
    AfterValidator,
    AliasChoices,
    FailFast,
    Field,
    StringConstraints,
    field_validator,
)
from typing_extensions import TypeAliasType

from memory_api.core.schemas import (
    Name,
    Page,
    ResponseModel,
    Tags,
    TenantRequest,
    UnitFloat,
    UtcDatetime,
    Words,
    with_examples,
)
from memory_api.playbooks.formats.serialization import MAX_COUNT, MAX_SECTIONS
from memory_api.playbooks.models import MAX_TEXT, DeltaContextItem, DeltaResult
from memory_api.playbooks.sections import SectionDefinition

ReviewMode = TypeAliasType(
    "ReviewMode",
    Annotated[
        Literal["off", "required"],
        Field(description="`required`: deltas become proposals that an admin key accepts."),
    ],
)
ProposalState = TypeAliasType(
    "ProposalState",
    Annotated[
        Literal["waiting", "accepted", "rejected"],
        Field(description="Whether a proposal waits for a decision."),
    ],
)
MAX_DELTAS_PER_REQUEST = 1_000
MAX_SOURCES_PER_DELTA = 1_000
MAX_TOKENS = 1_000_000
MAX_FOCUS_LENGTH = 300

DryRun = Annotated[bool, Query(description="Write nothing; the response shows what would change.")]
Reason = Annotated[str, Field(max_length=2_000)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
WhenToUse = Annotated[str, Field(max_length=10_000)]

EXAMPLE_ID = "019a4d2e-0000-7000-8000-000000000001"
EXAMPLE_TIME = "2026-11-21T09:30:00Z"
BULLET_EXAMPLE = {
    "id": "mis-00001",
    "section": "MISTAKES TO AVOID",
    "content": "Do not retry a payment that timed out before looking it up.",
    "searchable_text": "Do not retry a payment that timed out before looking it up.",
    "helpful": 3,
    "confidence_score": 1.0,
}


class ProjectRequest(TenantRequest):
    """A request in a project."""

    project_id: Name | None = Field(
        default=None,
        validation_alias=AliasChoices("project_id", "project"),
        description="Default: the project of the key, else `default`.",
    )


class Delta(DeltaContextItem):
    """A delta with the limits of stored texts."""

    source_ids: list[str] = Field(default_factory=list, max_length=MAX_SOURCES_PER_DELTA)
    keywords: Words | None = None
    tags: Tags | None = None

    @field_validator("content", "when_to_use", "title", "reasoning", "section")
    @classmethod
    def _check_length(cls, value: str | None) -> str | None:
        if value is not None and len(value) > MAX_TEXT:
            raise ValueError(f"The text is longer than {MAX_TEXT:,} characters")
        return value


class ApplyDeltasRequest(ProjectRequest):
    """Deltas to apply, all or none."""

    deltas: Annotated[list[Delta], FailFast()] = Field(
        min_length=1, max_length=MAX_DELTAS_PER_REQUEST
    )
    reason: Reason | None = None


class ApplyDeltasResponse(ResponseModel):
    """The result of each delta."""

    version: int = Field(description="Version of the playbook after this request.")
    applied: bool = Field(description="False for a dry run and for a proposal.")
    held: bool = Field(default=False, description="True if the deltas became a proposal.")
    proposal_id: UUID | None = None
    results: list[DeltaResult] = Field(description="In the order of the deltas.")
    sanitized: bool = Field(
        default=False, description="True if unstorable characters or secrets were replaced."
    )


class PlaybookSummary(ResponseModel):
    """A playbook without its bullets."""

    model_config = ResponseModel.model_config | with_examples(
        {
            "name": "support",
            "project_id": "default",
            "version": 7,
            "active_bullet_count": 42,
            "sections": [{"name": "OTHERS", "slug": "oth", "description": "Everything else."}],
            "review_mode": "off",
            "token_budget": 2000,
            "max_bullets": None,
            "holdout_share": 0.0,
            "focus": "Conventions of our accounting",
            "created_at": EXAMPLE_TIME,
            "updated_at": EXAMPLE_TIME,
        }
    )

    name: str
    project_id: str
    version: int = Field(description="Number of changes so far.")
    active_bullet_count: int = Field(
        validation_alias=AliasChoices("active_count", "active_bullet_count"),
        description="Number of active bullets.",
    )
    sections: list[SectionDefinition] = Field(default_factory=list[SectionDefinition])
    review_mode: ReviewMode = Field(
        description="`required`: deltas become proposals that an admin key accepts."
    )
    token_budget: int | None = Field(description="Default size of a render, in tokens.")
    max_bullets: int | None = Field(description="Maximum number of active bullets.")
    holdout_share: float = Field(
        description="Share of renders, 0 to 1, that leave out one random bullet."
    )
    focus: str | None = Field(description="What the playbook should collect, as its owner says.")
    created_at: UtcDatetime
    updated_at: UtcDatetime


class PlaybookPage(Page[PlaybookSummary]):
    """One page of playbooks, by name."""


def _check_focus(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be one line without control characters")
    return value


Focus = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_FOCUS_LENGTH),
    AfterValidator(_check_focus),
]


class UpdatePlaybookRequest(ProjectRequest):
    """Changes of the settings. Only the fields that are sent change; null removes a limit."""

    sections: list[SectionDefinition] = Field(
        default_factory=list[SectionDefinition], min_length=1, max_length=MAX_SECTIONS
    )
    review_mode: ReviewMode = Field(default_factory=lambda: "off")
    token_budget: int | None = Field(default=None, ge=0, le=MAX_TOKENS)
    max_bullets: int | None = Field(default=None, ge=0, le=MAX_COUNT)
    holdout_share: UnitFloat = 0.0
    focus: Focus | None = Field(
        default=None,
        description="What the playbook should collect, in one sentence. The models that reflect "
        "and curate read it.",
    )
    reason: Reason | None = None

    def fields(self) -> dict[str, Any]:
        sent = self.model_fields_set - {"reason", "tenant_id", "project_id"}
        return {name: getattr(self, name) for name in sent}


class DecideProposalRequest(ProjectRequest):
    """The decision on a proposal."""

    reason: Reason | None = None


class Proposal(ResponseModel):
    """Deltas that wait for a person, or that a person decided on."""

    model_config = ResponseModel.model_config | with_examples(
        {
            "id": EXAMPLE_ID,
            "state": "waiting",
            "deltas": [{"type": "DELETE", "bullet_id": "mis-00001", "reasoning": "Outdated."}],
            "reason": None,
            "actor": "run",
            "run_id": EXAMPLE_ID,
            "accepted_version": None,
            "decided_by": None,
            "decision_reason": None,
            "decided_at": None,
            "created_at": EXAMPLE_TIME,
        }
    )

    id: UUID
    state: ProposalState
    deltas: list[DeltaContextItem]
    reason: str | None
    actor: str | None = Field(description="Author of the proposal: `key:` and a key ID, or `run`.")
    run_id: UUID | None = Field(description="The run that proposed it.")
    accepted_version: int | None = Field(
        description="The version that it became when it was accepted."
    )
    decided_by: str | None
    decision_reason: str | None
    decided_at: UtcDatetime | None
    created_at: UtcDatetime


class ProposalPage(Page[Proposal]):
    """One page of proposals, newest first."""
