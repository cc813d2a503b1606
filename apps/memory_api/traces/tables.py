"""Tables of traces and their events."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    Computed,
    DateTime,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import (
    Base,
    Id,
    Json,
    Now,
    OptJson,
    OptStr,
    OptTime,
    Str,
    StrList,
    TenantId,
)


class TraceRow(Base):
    """The record of one agent run: an attempt at `task_key` if it has one."""

    __tablename__ = "traces"
    __table_args__ = (
        UniqueConstraint("tenant_id", "project_id", "external_id"),
        Index(
            "traces_project_id_created_at_idx",
            "tenant_id",
            "project_id",
            text("created_at desc"),
            text("id desc"),
        ),
        Index(
            "traces_project_id_task_key_created_at_idx",
            "tenant_id",
            "project_id",
            "task_key",
            "created_at",
            postgresql_where=text("task_key is not null"),
        ),
        Index(
            "traces_session_id_idx",
            "tenant_id",
            "session_id",
            postgresql_where=text("session_id is not null"),
        ),
        Index(
            "traces_retrieval_id_idx",
            "tenant_id",
            "retrieval_id",
            postgresql_where=text("retrieval_id is not null"),
        ),
        Index(
            "traces_call_sequence_idx",
            "tenant_id",
            "project_id",
            "call_sequence",
            postgresql_where=text("call_sequence is not null"),
        ),
        Index(
            "traces_updated_at_idx",
            "tenant_id",
            "updated_at",
            postgresql_where=text("state = 'open'"),
        ),
        Index(
            "traces_events_created_at_idx",
            "tenant_id",
            "project_id",
            "created_at",
            postgresql_where=text("events_deleted_at is null and state = 'closed'"),
        ),
        Index(
            "traces_subject_idx",
            "tenant_id",
            text("(metadata ->> 'subject')"),
            postgresql_where=text("(metadata ->> 'subject') is not null"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    project_id: Mapped[Str]
    external_id: Mapped[OptStr]
    task_key: Mapped[OptStr]
    parent_id: Mapped[UUID | None]
    session_id: Mapped[OptStr]
    playbook: Mapped[OptStr]
    task_description: Mapped[OptStr]
    task_goal: Mapped[OptStr]
    outcome: Mapped[OptStr]
    """As the client reported it."""
    conflict: Mapped[OptJson]
    """`OutcomeConflict`, written by the evaluation; NULL without any."""
    check_outcome: Mapped[OptStr]
    """`success` or `failure` by a check that the client declared; NULL without any."""
    effective_outcome: Mapped[OptStr] = mapped_column(
        Computed("coalesce(conflict ->> 'check', outcome, check_outcome)", persisted=True)
    )
    """What learning and measured effects use."""
    state: Mapped[Str] = mapped_column(server_default="closed")
    error: Mapped[OptJson]
    query: Mapped[OptStr]
    generated_answer: Mapped[OptStr]
    reasoning_steps: Mapped[OptJson]
    ground_truth: Mapped[OptJson]
    test_report: Mapped[OptStr]
    used_bullet_keys: Mapped[StrList]
    retrieval_id: Mapped[UUID | None]
    related_memory_ids: Mapped[StrList]
    language: Mapped[OptStr]
    tools: Mapped[OptJson]
    """`ToolDefinition`s, NULL without any."""
    metadata_: Mapped[Json] = mapped_column("metadata")
    event_count: Mapped[int] = mapped_column(server_default="0")
    content_hash: Mapped[bytes] = mapped_column(LargeBinary)
    call_sequence: Mapped[bytes | None] = mapped_column(LargeBinary)
    """Of a success without a failed call: the hash of the tools that it called in order."""
    duplicate_of: Mapped[UUID | None]
    """The trace that this one repeats, sent again without an `external_id`."""
    created_at: Mapped[Now]
    updated_at: Mapped[Now]
    closed_at: Mapped[OptTime]
    events_deleted_at: Mapped[OptTime]
    """When the retention period of the events ended."""


class TraceEventRow(Base):
    """One event. `seq` counts from 0 in the order of the request."""

    __tablename__ = "trace_events"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "trace_id"], ["traces.tenant_id", "traces.id"], ondelete="CASCADE"
        ),
    )

    tenant_id: Mapped[TenantId]
    trace_id: Mapped[Id]
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    event_id: Mapped[Str]
    event_type: Mapped[Str]
    content: Mapped[Str]
    timestamp: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    metadata_: Mapped[Json] = mapped_column("metadata")
    tool_name: Mapped[OptStr]
    error: Mapped[OptJson]
    agent: Mapped[OptStr]
