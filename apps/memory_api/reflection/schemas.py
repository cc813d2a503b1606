"""Reflections on the wire (spec 5, "Data Models")."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AliasChoices, Field, model_validator
from typing_extensions import TypeAliasType

from memory_api.core.schemas import (
    MAX_EVENTS,
    Metadata,
    Name,
    NotBlank,
    PlaybookField,
    ProjectId,
    ResponseModel,
    Tags,
    TenantRequest,
    UnitFloat,
    UtcDatetime,
)
from memory_api.memories.schemas import Memory, MemoryKind
from memory_api.playbooks.models import VerdictTag
from memory_api.traces.schemas import ErrorCategory, ErrorInfo, Event, OutcomeType
from memory_api.traces.tools import ToolDefinition, Tools

CauseKind = Literal[
    "agent_mistake",
    "unknown_convention",
    "agent_decision",
    "outside_agent_control",
    "expected_result_conflicts_with_policy",
    "succeeded_by_luck",
    "unknown",
]
"""What determined the outcome. No rule for agents follows from `outside_agent_control` and
`expected_result_conflicts_with_policy`; from `succeeded_by_luck`, what not to rely on. An
`unknown_convention` could not be known beforehand: only the outcome reveals it.
"""


class ReflectionResult(ResponseModel):
    """What was learned. `importance` and `confidence` are from 0 to 1. `source_event_ids` has at
    most five events, the most decisive first.

    A model separates `root_cause` from `explanation`; `reflection_text` contains both. `rules` are
    for other tasks too, and `strategy_text` is the first of them. `task_hint` helps only with the
    same task.
    """

    reflection_text: str
    strategy_text: str | None = None
    root_cause: str | None = None
    explanation: str | None = None
    cause_kind: CauseKind | None = None
    rules: list[str] = Field(default_factory=list)
    task_hint: str | None = None
    importance: UnitFloat = 0.5
    confidence: UnitFloat = 0.5
    tags: Tags = Field(default_factory=list)
    error_category: ErrorCategory | None = None
    source_event_ids: list[str] = Field(default_factory=list)
    related_memory_ids: list[UUID] = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=dict)
    generated_at: UtcDatetime = Field(default_factory=lambda: datetime.now(UTC))

    @model_validator(mode="after")
    def _align_rules(self) -> ReflectionResult:
        """`strategy_text` is the first rule, whichever of the two was given."""
        if self.strategy_text and not self.rules:
            self.rules = [self.strategy_text]
        elif self.rules and not self.strategy_text:
            self.strategy_text = self.rules[0]
        return self


class GenerateReflectionRequest(TenantRequest):
    """An agent run to reflect on."""

    project_id: ProjectId = None
    playbook: PlaybookField = None
    session_id: Name | None = None
    events: list[Event] = Field(min_length=1, max_length=MAX_EVENTS)
    outcome: OutcomeType
    error: ErrorInfo | None = None
    task_description: str | None = None
    task_goal: str | None = None
    related_memory_ids: list[UUID] = Field(default_factory=list, max_length=1000)
    task_key: Name | None = None
    external_id: Name | None = None
    tools: Tools = Field(default_factory=list[ToolDefinition])


class VerdictSummary(ResponseModel):
    """A recorded verdict on a bullet that the agent used."""

    key: str
    tag: VerdictTag
    judge: str
    reason: str | None = None


class StrategySummary(ResponseModel):
    """A strategy learned from a trace."""

    id: UUID
    new: bool = Field(description="False if the strategy was already stored.")


class GenerateReflectionResponse(ResponseModel):
    """What was learned from an agent run."""

    reflection_id: UUID | None = None
    strategy_id: UUID | None = None
    reflection_text: str | None = None
    strategy_text: str | None = Field(default=None, description="The first of `rules`.")
    root_cause: str | None = Field(
        default=None, description="Null if the rules engine wrote the reflection."
    )
    explanation: str | None = Field(
        default=None, description="How the root cause led to the outcome. Null as `root_cause`."
    )
    cause_kind: CauseKind | None = Field(
        default=None,
        description="What determined the outcome, as the model judges it. Null for a decision of "
        "the agent in a successful run that no failed attempt or call can be compared with.",
    )
    rules: list[str] = Field(
        default_factory=list, description="At most three rules for tasks of this kind."
    )
    task_hint: str | None = Field(
        default=None,
        description="What helps only with the same task. It does not go to the playbook.",
    )
    importance: UnitFloat | None = None
    confidence: UnitFloat | None = None
    tags: list[str] = Field(default_factory=list)
    error_category: ErrorCategory | None = None
    source_event_ids: list[str] = Field(default_factory=list)
    trace_id: UUID
    run_id: UUID
    engine: str = Field(description="`rules` or `llm`.")
    degraded: bool = Field(default=False, description="True if the rules replaced a failing model.")
    result: Literal["stored", "already_known", "nothing_found"] = Field(
        description="`already_known`: it was stored before; its observation count grew by one."
    )
    duplicate: bool = Field(default=False, description="True if the trace was stored before.")
    sanitized: bool = Field(
        default=False, description="True if unstorable characters were replaced."
    )
    verdicts: list[VerdictSummary] = Field(default_factory=list["VerdictSummary"])
    strategies: list[StrategySummary] = Field(
        default_factory=list["StrategySummary"],
        description="The strategy of this trace (`strategy_id`) first, then strategies from a "
        "comparison of the attempts at its task.",
    )
    confirmed_lesson_ids: list[UUID] = Field(
        default_factory=list,
        description="Known lessons that the model found confirmed; each has one more observation.",
    )
    next_run_id: UUID | None = Field(
        default=None, description="The run that follows, such as the curation of the lesson."
    )


class RunAccepted(ResponseModel):
    """A queued run. `GET /api/v1/runs/{run_id}` shows its state and later its result."""

    run_id: UUID
    trace_id: UUID
    state: str
    sanitized: bool = False


class CreateReflectionRequest(TenantRequest):
    """A reflection that the client wrote."""

    project_id: ProjectId = None
    session_id: Name | None = None
    reflection_text: Annotated[str, NotBlank] = Field(min_length=1, max_length=100_000)
    strategy_text: Annotated[str, NotBlank] | None = Field(
        default=None, min_length=1, max_length=100_000
    )
    importance: UnitFloat = 0.5
    confidence: UnitFloat = 0.5
    tags: Tags = Field(default_factory=list)
    error_category: ErrorCategory | None = None
    trace_id: UUID | None = None
    metadata: Metadata = Field(default_factory=dict)


class CreateReflectionResponse(ResponseModel):
    """The stored reflection."""

    reflection_id: UUID
    strategy_id: UUID | None = None
    result: Literal["stored", "already_known"]
    sanitized: bool = False


ReflectionKind = TypeAliasType(
    "ReflectionKind",
    Literal[MemoryKind.REFLECTION, MemoryKind.STRATEGY, MemoryKind.INSIGHT],
)


class QueryReflectionsRequest(TenantRequest):
    """A search for reflections. A list means any of its values."""

    project_id: ProjectId = None
    query_text: str | None = Field(default=None, max_length=10_000)
    k: int = Field(
        default=5,
        ge=1,
        le=1000,
        validation_alias=AliasChoices("k", "top_k"),
        description="Maximum number of results. `top_k` is accepted too.",
    )
    min_importance: UnitFloat = Field(default=0.5, description="Lower limit of `importance`.")
    tags: Tags = Field(default_factory=list)
    kinds: list[ReflectionKind] = Field(
        default_factory=lambda: [MemoryKind.REFLECTION, MemoryKind.STRATEGY, MemoryKind.INSIGHT],
        min_length=1,
        max_length=3,
    )
    error_categories: list[ErrorCategory] = Field(default_factory=list, max_length=16)
    since: UtcDatetime | None = None
    until: UtcDatetime | None = None


class ReflectionHit(Memory):
    """A result of a search for reflections."""

    score: float = Field(description="Score of the search; 0 without `query_text`.")


class QueryReflectionsResponse(ResponseModel):
    """Reflections, strategies and insights, best first."""

    reflections: list[ReflectionHit]


class ModelFailure(ResponseModel):
    """Why the model gave no answer."""

    code: str
    message: str
