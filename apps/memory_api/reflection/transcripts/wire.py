"""Transcripts over HTTP: what is sent, what is answered."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import AliasChoices, Field

from apps.memory_api.core.schemas import MAX_EVENTS, Model, Name, PlaybookName, TenantBody
from apps.memory_api.reflection.insights.wire import Failed
from apps.memory_api.reflection.transcripts.reflector import BulletTag
from apps.memory_api.traces.schemas import OutcomeType


class TranscriptIn(TenantBody):
    """A session to be reflected on (spec 4). `messages` are `{role, content}`, or the lines of a
    session file. Without `cited_ids` they are read from the assistant's messages. `apply` false
    counts nothing.
    """

    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_EVENTS)
    playbook: PlaybookName | None = Field(
        None, validation_alias=AliasChoices("playbook", "dataset")
    )
    cited_ids: list[Name] | None = Field(None, max_length=1000)
    apply: bool = True
    session_id: Name | None = None
    task_key: Name | None = None
    task_description: str | None = None
    outcome: OutcomeType | None = None
    render_id: UUID | None = None
    external_id: Name | None = None


class TranscriptReflection(Model):
    """What the session shows. `bullet_tags` are on key points of the playbook only; `counted` are
    those whose counters hold a verdict of this session: one for a session however often it is sent.

    When the model fails, analysis and tags are empty (spec 4), `degraded` is true and `error` says
    why; the run is then failed and can be retried.
    """

    analysis: str
    bullet_tags: list[BulletTag]
    cited_ids: list[str]
    run_id: UUID
    trace_id: UUID
    counted: list[str] = Field(default_factory=list[str])
    reflection_id: UUID | None = None
    engine: str | None = None
    degraded: bool = False
    error: Failed | None = None
    next_run_id: UUID | None = None
    duplicate: bool = False
    cleaned: bool = False
