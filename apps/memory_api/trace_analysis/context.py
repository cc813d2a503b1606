"""What trace analysis examines: a trace and earlier attempts at its task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import Field, field_validator

from memory_api.core.schemas import ResponseModel
from memory_api.traces.schemas import ErrorInfo, Event, OutcomeType
from memory_api.traces.tools import ToolDefinition, Tools


@dataclass(frozen=True, slots=True)
class Attempt:
    """An earlier attempt at the same task."""

    outcome: OutcomeType
    events: Sequence[Event]
    trace_id: str | None = None
    tools: Sequence[ToolDefinition] = ()


class ReflectionContext(ResponseModel):
    """One trace to reflect on. `events` are in the order in which they happened. If the outcome is
    not known, `outcome` is `partial` and no text states it. `overruled_outcome` is what the client
    reported, if a check that it declared contradicts it.
    """

    events: list[Event]
    outcome: OutcomeType
    outcome_is_known: bool = True
    overruled_outcome: OutcomeType | None = None
    tenant_id: str
    project_id: str = "default"
    session_id: str | None = None
    error: ErrorInfo | None = None
    task_description: str | None = None
    task_goal: str | None = None
    generated_answer: str | None = None
    related_memory_ids: list[UUID] = Field(default_factory=list)
    tools: Tools = Field(default_factory=list[ToolDefinition])

    @property
    def known_outcome(self) -> OutcomeType | None:
        return self.outcome if self.outcome_is_known else None

    @field_validator("session_id", mode="before")
    @classmethod
    def _uuid_to_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, UUID) else value
