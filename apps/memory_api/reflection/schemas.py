"""Reflection's own words (spec 5 "Data Models"): what goes into a reflection and what comes out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import AliasChoices, Field, field_validator

from apps.memory_api.core.schemas import (
    MAX_EVENTS,
    Metadata,
    Model,
    Name,
    PlaybookName,
    Tags,
    TenantBody,
    Time,
    Unit,
)
from apps.memory_api.memory.schemas import Kind, MemoryView
from apps.memory_api.playbook.schemas import Vote
from apps.memory_api.traces.schemas import ErrorCategory, ErrorInfo, Event, OutcomeType


class ReflectionContext(Model):
    """One run to be reflected on. `events` in the order they happened."""

    events: list[Event]
    outcome: OutcomeType
    tenant_id: str
    project_id: str = "default"
    session_id: str | None = None
    error: ErrorInfo | None = None
    task_description: str | None = None
    task_goal: str | None = None
    related_memory_ids: list[UUID] = Field(default_factory=list)

    @field_validator("session_id", mode="before")
    @classmethod
    def _uuid_is_a_name(cls, value: Any) -> Any:
        return str(value) if isinstance(value, UUID) else value


class ReflectionResult(Model):
    """What was learnt. `importance` and `confidence` are 0..1; `source_event_ids` holds at most
    five, most to blame first.
    """

    reflection_text: str
    strategy_text: str | None = None
    importance: Unit = 0.5
    confidence: Unit = 0.5
    tags: Tags = Field(default_factory=list)
    error_category: ErrorCategory | None = None
    source_event_ids: list[str] = Field(default_factory=list)
    related_memory_ids: list[UUID] = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=dict)
    generated_at: Time = Field(default_factory=lambda: datetime.now(UTC))


class GenerateIn(TenantBody):
    """A run to be reflected on (spec 5, "From API Endpoints")."""

    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    playbook: PlaybookName | None = Field(
        None, validation_alias=AliasChoices("playbook", "dataset")
    )
    session_id: Name | None = None
    events: list[Event] = Field(min_length=1, max_length=MAX_EVENTS)
    outcome: OutcomeType
    error: ErrorInfo | None = None
    task_description: str | None = None
    task_goal: str | None = None
    related_memory_ids: list[UUID] = Field(default_factory=list, max_length=1000)
    task_key: Name | None = None
    external_id: Name | None = None


class Judged(Model):
    """A verdict on a bullet that the run had used, as it was stored."""

    key: str
    tag: Vote
    judge: str
    reason: str | None = None


class Taught(Model):
    """A strategy that a run came to; `new` is false where it was said before."""

    id: UUID
    new: bool


class GenerateAnswer(Model):
    """What was learnt from a run. `result`: stored, witnessed (said before), or nothing_found.

    `strategies` are all it taught: its own (`strategy_id`) first, then what the attempts of its
    task teach together.
    """

    reflection_id: UUID | None = None
    strategy_id: UUID | None = None
    reflection_text: str | None = None
    strategy_text: str | None = None
    importance: Unit | None = None
    confidence: Unit | None = None
    tags: list[str] = Field(default_factory=list)
    error_category: ErrorCategory | None = None
    source_event_ids: list[str] = Field(default_factory=list)
    trace_id: UUID
    run_id: UUID
    engine: str
    degraded: bool = False
    result: Literal["stored", "witnessed", "nothing_found"]
    duplicate: bool = False
    cleaned: bool = False
    verdicts: list[Judged] = Field(default_factory=list["Judged"])
    strategies: list[Taught] = Field(default_factory=list["Taught"])
    next_run_id: UUID | None = None
    """The run that goes on with this: it brings the lesson into the playbook, or writes again with
    the model what rules wrote."""


class AcceptedAnswer(Model):
    """A run that is stored and will be reflected on: GET /api/v1/runs/{run_id} tells how far it
    is.
    """

    run_id: UUID
    trace_id: UUID
    state: str
    cleaned: bool = False


class NewReflection(TenantBody):
    """A reflection somebody brings: no model is called."""

    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    session_id: Name | None = None
    reflection_text: str = Field(min_length=1, max_length=100_000)
    strategy_text: str | None = Field(None, min_length=1, max_length=100_000)
    importance: Unit = 0.5
    confidence: Unit = 0.5
    tags: Tags = Field(default_factory=list)
    error_category: ErrorCategory | None = None
    trace_id: UUID | None = None
    metadata: Metadata = Field(default_factory=dict)


class Brought(Model):
    """Where a brought reflection is kept; `result` as in `GenerateAnswer`."""

    reflection_id: UUID
    strategy_id: UUID | None = None
    result: Literal["stored", "witnessed"]
    cleaned: bool = False


ReflectionKind = Literal[Kind.REFLECTION, Kind.STRATEGY, Kind.INSIGHT]


class ReflectionQuery(TenantBody):
    """Which lessons to give. Lists mean any of; without a text they are ordered by usefulness and
    importance.
    """

    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    query_text: str | None = Field(None, max_length=10_000)
    k: int = Field(5, ge=1, le=1000)
    min_importance: Unit = 0.5
    tags: Tags = Field(default_factory=list)
    kinds: list[ReflectionKind] = Field(
        default_factory=lambda: [Kind.REFLECTION, Kind.STRATEGY, Kind.INSIGHT],
        min_length=1,
        max_length=3,
    )
    error_categories: list[ErrorCategory] = Field(default_factory=list, max_length=16)
    since: Time | None = None
    until: Time | None = None


class ReflectionHit(MemoryView):
    """A lesson found, with the score of the search (0 without a text)."""

    score: float


class ReflectionsAnswer(Model):
    reflections: list[ReflectionHit]
