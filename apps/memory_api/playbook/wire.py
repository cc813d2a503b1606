"""Playbooks on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, AliasChoices, Field, field_validator

from apps.memory_api.core.openapi import shown
from apps.memory_api.core.schemas import Metadata, Model, Name, Tags, TenantBody, Time, Unit
from apps.memory_api.playbook.evaluate import Judge
from apps.memory_api.playbook.formats import MAX_COUNT, MAX_SECTIONS
from apps.memory_api.playbook.import_export import MAX_TEXT
from apps.memory_api.playbook.schemas import (
    Bullet,
    DeltaContextItem,
    DeltaResult,
    Vote,
)
from apps.memory_api.playbook.sections import SectionDefinition
from apps.memory_api.playbook.vote import Voter

MAX_DELTAS_SENT = 1_000
MAX_TOKENS = 1_000_000

APPLY = "False: say what would happen and write nothing."
Reason = Annotated[str, Field(max_length=2_000)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
WhenToUse = Annotated[str, Field(max_length=10_000)]


_ID = "019a4d2e-0000-7000-8000-000000000001"
_NOW = "2026-11-21T09:30:00Z"
_BULLET = {
    "id": "mis-00001",
    "section": "MISTAKES TO AVOID",
    "content": "Do not retry a payment that timed out before looking it up.",
    "searchable_text": "Do not retry a payment that timed out before looking it up.",
    "helpful": 3,
    "confidence_score": 1.0,
}
_VERDICT = {
    "id": _ID,
    "judge": "human",
    "tag": "helpful",
    "reason": "It kept the agent from charging twice.",
    "evidence": {"how": "cited"},
    "confirmed": False,
    "trace_id": None,
    "render_id": None,
    "actor": f"key:{_ID}",
    "created_at": _NOW,
    "updated_at": _NOW,
}


class ProjectBody(TenantBody):
    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))


class DeltaIn(DeltaContextItem):
    """A delta as it is sent: with the limits of what rows hold."""

    @field_validator("content", "when_to_use", "title", "reasoning", "section")
    @classmethod
    def _not_too_long(cls, value: str | None) -> str | None:
        if value is not None and len(value) > MAX_TEXT:
            raise ValueError(f"at most {MAX_TEXT} characters")
        return value

    @field_validator("tags", "keywords")
    @classmethod
    def _few_and_short(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and (len(value) > 64 or any(not 0 < len(v) <= 64 for v in value)):
            raise ValueError("at most 64, of 1 to 64 characters each")
        return value


class DeltasIn(ProjectBody):
    """Edits of a playbook, all or none."""

    deltas: list[DeltaIn] = Field(min_length=1, max_length=MAX_DELTAS_SENT)
    apply: bool = Field(True, description=APPLY)
    reason: Reason | None = None


class DeltasAnswer(Model):
    """`version` is the playbook's after this. `held`: they wait for a person as `proposal_id`."""

    version: int
    applied: bool
    held: bool = False
    proposal_id: UUID | None = None
    results: list[DeltaResult]
    cleaned: bool = False


class BulletIn(ProjectBody):
    """A bullet of a person's own; its key is made."""

    content: str = Field(
        min_length=1, max_length=MAX_TEXT, validation_alias=AliasChoices("content", "text")
    )
    section: Name = "OTHERS"
    when_to_use: WhenToUse = ""
    title: Name | Literal[""] = ""
    keywords: Tags = Field(default_factory=list)
    tags: Tags = Field(default_factory=list)
    pinned: bool = False
    reason: Reason | None = None


def _said(value: str) -> str:
    if not value.strip():
        raise ValueError("a bullet needs a text")
    return value


class BulletPatch(ProjectBody):
    """What may be changed of a bullet by a person. Only the fields that are sent change."""

    content: Annotated[Text, AfterValidator(_said)] = Field(default_factory=str)
    section: Name = Field(default_factory=str)
    when_to_use: WhenToUse = Field(default_factory=str)
    title: Name | Literal[""] = Field(default_factory=str)
    keywords: Tags = Field(default_factory=list)
    tags: Tags = Field(default_factory=list)
    status: Literal["active", "quarantined", "archived"] = Field(default_factory=lambda: "active")
    pinned: bool = Field(default_factory=bool)
    reason: Reason | None = None

    def fields(self) -> dict[str, Any]:
        sent = self.model_fields_set - {"reason", "tenant_id", "project_id"}
        return {name: getattr(self, name) for name in sent}


class BulletView(Bullet):
    """A bullet with what the service knows of it beside spec 2's fields."""

    model_config = Bullet.model_config | shown(
        _BULLET
        | {
            "memory_id": _ID,
            "usefulness": 0.473,
            "version": 7,
            "created_at": _NOW,
            "updated_at": _NOW,
        }
    )

    memory_id: UUID
    usefulness: float
    version: int | None = Field(description="The playbook's version that last changed it.")
    created_at: Time
    updated_at: Time


class BulletStored(Model):
    """A bullet just written, and the version of the playbook that holds it."""

    version: int
    bullet: Bullet
    cleaned: bool = False


class EvaluationIn(ProjectBody):
    """A verdict on a bullet, of one run if `trace_id` says which."""

    tag: Vote
    judge: Voter | None = Field(
        None, description="Default: `human` with an admin key, which alone may say so, else `llm`."
    )
    reason: str | None = Field(
        None, max_length=MAX_TEXT, validation_alias=AliasChoices("reason", "rationale", "evidence")
    )
    trace_id: UUID | None = None
    render_id: UUID | None = None


class EvaluationView(Model):
    """One verdict on a bullet."""

    model_config = Model.model_config | shown(_VERDICT)

    id: UUID
    judge: Judge
    tag: Vote
    reason: str | None
    evidence: Metadata = Field(description="What it rests on: the outcome, the step, how used.")
    confirmed: bool = Field(description="Of an outcome: whether it counts, by comparison.")
    trace_id: UUID | None
    render_id: UUID | None
    actor: str | None
    created_at: Time
    updated_at: Time


class EvaluationAnswer(Model):
    """`key` is the bullet it went to: the survivor, where the one named was merged."""

    evaluation: EvaluationView
    key: str
    counts: bool = Field(description="Whether the counters hold this verdict.")
    quarantined: bool = Field(description="Whether the bullet went out of service by it.")
    bullet: Bullet
    cleaned: bool = False


class PlaybookView(Model):
    """A playbook without its bullets."""

    model_config = Model.model_config | shown(
        {
            "name": "support",
            "project_id": "default",
            "version": 7,
            "active": 42,
            "sections": [{"name": "OTHERS", "slug": "oth", "description": "Everything else."}],
            "review": "off",
            "token_budget": 2000,
            "max_bullets": None,
            "holdout": 0.0,
            "created_at": _NOW,
            "updated_at": _NOW,
        }
    )

    name: str
    project_id: str
    version: int
    active: int = Field(description="How many of its bullets are active.")
    sections: list[SectionDefinition]
    review: Literal["off", "required"]
    token_budget: int | None
    max_bullets: int | None
    holdout: float = Field(description="Share of renders that leave out a bullet drawn by lot.")
    created_at: Time
    updated_at: Time


class PlaybookPatch(ProjectBody):
    """Only the fields that are sent change; null takes a limit away."""

    sections: list[SectionDefinition] = Field(
        default_factory=list[SectionDefinition], min_length=1, max_length=MAX_SECTIONS
    )
    review: Literal["off", "required"] = Field(default_factory=lambda: "off")
    token_budget: int | None = Field(None, ge=0, le=MAX_TOKENS)
    max_bullets: int | None = Field(None, ge=0, le=MAX_COUNT)
    holdout: Unit = 0.0
    reason: Reason | None = None

    def fields(self) -> dict[str, Any]:
        sent = self.model_fields_set - {"reason", "tenant_id", "project_id"}
        return {name: getattr(self, name) for name in sent}


class DecideIn(ProjectBody):
    reason: Reason | None = None


class AcceptIn(DecideIn):
    apply: bool = Field(True, description=APPLY)


class ProposalView(Model):
    """Deltas that wait for a person, or what became of them."""

    model_config = Model.model_config | shown(
        {
            "id": _ID,
            "state": "waiting",
            "deltas": [{"type": "DELETE", "bullet_id": "mis-00001", "reasoning": "Outdated."}],
            "reason": None,
            "actor": "run",
            "run_id": _ID,
            "version": None,
            "decided_by": None,
            "decided_reason": None,
            "decided_at": None,
            "created_at": _NOW,
        }
    )

    id: UUID
    state: Literal["waiting", "accepted", "rejected"]
    deltas: list[DeltaContextItem]
    reason: str | None
    actor: str | None
    run_id: UUID | None
    version: int | None
    decided_by: str | None
    decided_reason: str | None
    decided_at: Time | None
    created_at: Time
