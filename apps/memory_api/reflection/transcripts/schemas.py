"""Reflection on transcripts on the wire (spec 4)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field, field_validator

from memory_api.core.schemas import (
    MAX_EVENTS,
    Name,
    PlaybookField,
    ProjectId,
    ResponseModel,
    TenantRequest,
)
from memory_api.playbooks.models import VerdictTag
from memory_api.reflection.schemas import ModelFailure
from memory_api.traces.schemas import OutcomeType
from memory_api.traces.tools import ToolDefinition, Tools


class ReflectOnTranscriptRequest(TenantRequest):
    """A session to reflect on."""

    project_id: ProjectId = None
    messages: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=MAX_EVENTS,
        description="`{role, content}`, or the lines of a session file as objects.",
    )
    playbook: PlaybookField = None
    cited_ids: list[Name] | None = Field(
        default=None,
        max_length=1000,
        description="Keys of cited bullets. Default: read from the assistant's messages.",
    )
    record_verdicts: bool = Field(
        default=True,
        description="False: the playbook does not change. No verdict is recorded, and the insights "
        "are not sent to its curator.",
    )
    session_id: Name | None = Field(default=None, description="Identifies a session that grows.")
    task_key: Name | None = None
    task_description: str | None = None
    outcome: OutcomeType | None = None
    retrieval_id: UUID | None = None
    external_id: Name | None = None
    tools: Tools = Field(default_factory=list[ToolDefinition])


class TranscriptTag(BaseModel):
    """What the session shows about one key point."""

    name: str = Field(description="The key point's name, without brackets")
    tag: VerdictTag = Field(description="helpful, harmful or neutral")
    rationale: str = Field("", description="What in the transcript shows it, 1 sentence")

    @field_validator("name", mode="before")
    @classmethod
    def _strip_brackets(cls, value: Any) -> Any:
        return value.strip(" []") if isinstance(value, str) else value


class TranscriptInsight(ResponseModel):
    """A rule for later sessions. If it is not new, the memory has one more observation."""

    memory_id: UUID
    content: str
    new: bool


class ReflectOnTranscriptResponse(ResponseModel):
    """What a session shows. If the model fails, analysis, tags and insights are empty, `degraded`
    is true and `error` has the cause; the run can be retried.
    """

    analysis: str
    bullet_tags: list[TranscriptTag] = Field(description="Only bullets of the playbook.")
    cited_ids: list[str]
    run_id: UUID
    trace_id: UUID
    counted_bullet_keys: list[str] = Field(
        default_factory=list[str],
        description="Keys of the bullets whose counters include a verdict of this session.",
    )
    insights: list[TranscriptInsight] = Field(
        default_factory=list[TranscriptInsight],
        description="At most 3. The curator of the playbook receives them in `next_run_id`.",
    )
    event_count: int = Field(default=0, ge=0, description="Events of the stored trace.")
    reflection_id: UUID | None = None
    engine: str | None = Field(default=None, description="`rules` or `llm`.")
    degraded: bool = False
    error: ModelFailure | None = None
    next_run_id: UUID | None = Field(
        default=None, description="The run that follows, if there is one."
    )
    duplicate: bool = Field(default=False, description="True if the session was sent before.")
    sanitized: bool = Field(
        default=False, description="True if unstorable characters were replaced."
    )
