"""Tables of playbooks. Bullets are `memories` of kind `bullet` in the playbook's scope."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Computed,
    ForeignKeyConstraint,
    Index,
    SmallInteger,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Json, Now, OptStr, OptTime, Str, StrList, TenantId


class PlaybookRow(Base):
    """One playbook. A change of its bullets holds the lock of this row."""

    __tablename__ = "playbooks"
    __table_args__ = (
        UniqueConstraint("tenant_id", "project_id", "name"),
        ForeignKeyConstraint(["tenant_id", "scope_id"], ["scopes.tenant_id", "scopes.id"]),
        CheckConstraint("review_mode in ('off', 'required')", name="review_mode"),
        CheckConstraint("holdout_share between 0 and 1", name="holdout_share"),
        CheckConstraint("char_length(focus) <= 300", name="focus"),
    )

    tenant_id: Mapped[TenantId]
    scope_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    project_id: Mapped[Str]
    name: Mapped[Str]
    version: Mapped[int] = mapped_column(server_default="0")
    active_count: Mapped[int] = mapped_column(server_default="0")
    sections: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)
    key_counters: Mapped[Json]
    aliases: Mapped[Json]
    token_budget: Mapped[int | None]
    max_bullets: Mapped[int | None]
    review_mode: Mapped[Str] = mapped_column(server_default="off")
    cleaned_version: Mapped[int] = mapped_column(server_default="0")
    """The version at which near-duplicates were last searched for."""
    holdout_share: Mapped[float] = mapped_column(server_default="0")
    """Share of renders that withhold a random bullet, 0..1."""
    focus: Mapped[OptStr]
    """What the owner wants to keep, one sentence for the prompts of reflection and curation."""
    created_at: Mapped[Now]
    updated_at: Mapped[Now]
    deleted_at: Mapped[OptTime]


class PlaybookVersionRow(Base):
    """One change of a playbook. `sections` is null if it equals that of the previous version."""

    __tablename__ = "playbook_versions"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "scope_id"], ["playbooks.tenant_id", "playbooks.scope_id"]
        ),
        Index("playbook_versions_scope_id_created_at_idx", "tenant_id", "scope_id", "created_at"),
    )

    tenant_id: Mapped[TenantId]
    scope_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    change_type: Mapped[Str]
    """`import`, `deltas`, `proposal`, `bullet`, `restore`, `settings` or `delete`."""
    added_count: Mapped[int]
    updated_count: Mapped[int]
    removed_count: Mapped[int]
    active_count: Mapped[int]
    sections: Mapped[Any] = mapped_column(JSONB(none_as_null=True), nullable=True)
    reason: Mapped[OptStr]
    actor: Mapped[OptStr]
    run_id: Mapped[UUID | None]
    created_at: Mapped[Now]


class BulletSpanRow(Base):
    """The text of a bullet from `from_version` up to, but not including, `until_version`. The
    history trigger writes a row when the bullet changes.

    2^length_class <= until_version - from_version < 2^(length_class + 1). `searchable_text` is null
    if it follows from the other texts.
    """

    __tablename__ = "bullet_spans"
    __table_args__ = (
        CheckConstraint("from_version < until_version", name="length"),
        Index(
            "bullet_spans_scope_id_length_class_until_version_idx",
            "tenant_id",
            "scope_id",
            "length_class",
            "until_version",
            "from_version",
        ),
    )

    tenant_id: Mapped[TenantId]
    bullet_id: Mapped[Id]
    until_version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    from_version: Mapped[int]
    length_class: Mapped[int] = mapped_column(
        SmallInteger,
        Computed(
            "length(ltrim((until_version - from_version)::bit(32)::text, '0')) - 1", persisted=True
        ),
    )
    scope_id: Mapped[int]
    section: Mapped[OptStr]
    title: Mapped[OptStr]
    when_to_use: Mapped[OptStr]
    content: Mapped[Str]
    searchable_text: Mapped[OptStr]
    keywords: Mapped[StrList]
    tags: Mapped[StrList]
    status: Mapped[Str]
    pinned: Mapped[bool]
    awaiting_confirmation: Mapped[bool] = mapped_column(server_default="false")


class BulletVerdictRow(Base):
    """One verdict on one bullet. The counters include only the winning verdict of a trace."""

    __tablename__ = "bullet_verdicts"
    __table_args__ = (
        UniqueConstraint("tenant_id", "trace_id", "bullet_id", "judge"),
        ForeignKeyConstraint(["tenant_id", "bullet_id"], ["memories.tenant_id", "memories.id"]),
        CheckConstraint("judge in ('human', 'llm', 'outcome')", name="judge"),
        CheckConstraint("tag in ('helpful', 'harmful', 'neutral')", name="tag"),
        Index("bullet_verdicts_bullet_id_idx", "tenant_id", "bullet_id"),
        Index("bullet_verdicts_created_at_idx", "tenant_id", "created_at"),
        Index(
            "bullet_verdicts_helpful_idx",
            "tenant_id",
            "bullet_id",
            "created_at",
            postgresql_where=text("tag = 'helpful'"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    bullet_id: Mapped[UUID]
    trace_id: Mapped[UUID | None]
    judge: Mapped[Str]
    tag: Mapped[Str]
    reason: Mapped[OptStr]
    evidence: Mapped[Json]
    retrieval_id: Mapped[UUID | None]
    reason_memory_id: Mapped[UUID | None]
    """The memory of kind `verdict` that makes the reason searchable."""
    actor: Mapped[OptStr]
    run_id: Mapped[UUID | None]
    confirmed: Mapped[bool] = mapped_column(server_default=text("false"))
    """For the judge `outcome`: whether other attempts at the task confirm it, so that it is
    counted.
    """
    created_at: Mapped[Now]
    updated_at: Mapped[Now]


class RetrievalSecretRow(Base):
    """The secret with which the retrieval IDs of a tenant are signed."""

    __tablename__ = "retrieval_secrets"

    tenant_id: Mapped[TenantId]
    secret: Mapped[bytes]
    created_at: Mapped[Now]


class RetrievalRow(Base):
    """The bullets that one search or render returned. Traces refer to it by `retrieval_id`."""

    __tablename__ = "retrievals"
    __table_args__ = (
        CheckConstraint("kind in ('search', 'render')", name="kind"),
        Index(
            "retrievals_scope_id_created_at_idx", "tenant_id", "scope_id", text("created_at desc")
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    scope_id: Mapped[int]
    version: Mapped[int]
    kind: Mapped[Str]
    query: Mapped[Str]
    bullet_keys: Mapped[StrList]
    scores: Mapped[list[float]] = mapped_column(ARRAY(REAL), server_default=text("'{}'"))
    holdout_candidate: Mapped[OptStr]
    """The bullet that was drawn at random, if the render could withhold one."""
    held_out: Mapped[bool] = mapped_column(server_default=text("false"))
    """Whether the candidate was withheld."""
    advice_held_out: Mapped[bool | None]
    """Whether the whole block was withheld; null if the render was not part of that experiment."""
    created_at: Mapped[Now]


class MemoryUsageRow(Base):
    """How often a memory was returned. A table of its own, so that a read never rewrites
    a memory.
    """

    __tablename__ = "memory_usage"

    tenant_id: Mapped[TenantId]
    memory_id: Mapped[Id]
    use_count: Mapped[int] = mapped_column(BigInteger)
    last_used_at: Mapped[Now]


class ProposalRow(Base):
    """Deltas that wait for a person, because the playbook has `review_mode` = `required`."""

    __tablename__ = "playbook_proposals"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "scope_id"], ["playbooks.tenant_id", "playbooks.scope_id"]
        ),
        CheckConstraint("state in ('waiting', 'accepted', 'rejected')", name="state"),
        Index(
            "playbook_proposals_scope_id_created_at_idx",
            "tenant_id",
            "scope_id",
            text("created_at desc"),
            text("id desc"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    scope_id: Mapped[int]
    state: Mapped[Str] = mapped_column(server_default="waiting")
    deltas: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)
    sources: Mapped[Json]
    """Index of a delta → ids of the memories it was derived from."""
    reason: Mapped[OptStr]
    actor: Mapped[OptStr]
    run_id: Mapped[UUID | None]
    accepted_version: Mapped[int | None]
    """The version in which the accepted deltas were applied."""
    decided_by: Mapped[OptStr]
    decision_reason: Mapped[OptStr]
    decided_at: Mapped[OptTime]
    created_at: Mapped[Now]


class InboxLessonRow(Base):
    """A lesson that waits for a curation of its playbook, which deletes the row."""

    __tablename__ = "inbox_lessons"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "scope_id"], ["scopes.tenant_id", "scopes.id"]),
    )

    tenant_id: Mapped[TenantId]
    scope_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    id: Mapped[Id]
    """In the order of arrival."""
    memory_id: Mapped[UUID]
    """The strategy or insight."""
    trace_id: Mapped[UUID | None]
    chain_id: Mapped[UUID]
    """The first run of the chain that taught the lesson."""
    curation_run_id: Mapped[UUID | None]
    """The curation that took the lesson last."""
    curation_count: Mapped[int] = mapped_column(server_default="0")
    """The number of curations that took the lesson."""
    last_reason: Mapped[OptStr]
    """Why the last curation did not decide."""
    created_at: Mapped[Now]


class PlaybookCurationRow(Base):
    """The curation of one playbook. Its row lock is the last lock that a transaction takes."""

    __tablename__ = "playbook_curations"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "scope_id"], ["scopes.tenant_id", "scopes.id"]),
    )

    tenant_id: Mapped[TenantId]
    scope_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    active_run_id: Mapped[UUID | None]
    """The run that curates or applies now, if it has not ended."""
    queued_run_id: Mapped[UUID | None]
    """The run that takes the next lessons."""
    started_at: Mapped[OptTime]
    """When the last curation started."""
    consolidated_version: Mapped[int] = mapped_column(server_default="0")
    """The version of the playbook at its last consolidation."""
    consolidated_count: Mapped[int] = mapped_column(server_default="0")
    """The number of active bullets after the last consolidation."""
    consolidated_at: Mapped[OptTime]
