"""Reflection's own words (spec 5 "Data Models"): what goes into a reflection and what comes out."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from pydantic import Field

from apps.memory_api.core.schemas import Metadata, Model, Tags, Time, Unit
from apps.memory_api.traces.schemas import ErrorCategory, ErrorInfo, Event, OutcomeType


class ReflectionContext(Model):
    """One run to be reflected on. `events` in the order they happened."""

    events: list[Event]
    outcome: OutcomeType
    tenant_id: str
    project_id: str = "default"
    session_id: UUID | None = None
    error: ErrorInfo | None = None
    task_description: str | None = None
    task_goal: str | None = None
    related_memory_ids: list[UUID] = Field(default_factory=list)


class ReflectionResult(Model):
    """What was learnt. `importance` and `confidence` are 0..1; `source_event_ids` holds at most five, most to blame first."""

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
