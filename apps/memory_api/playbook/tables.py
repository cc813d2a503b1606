"""Playbooks as rows. Their bullets are `memories` of kind `bullet` in the playbook's scope."""

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

from apps.memory_api.core.columns import Id, Json, Now, OptStr, OptTime, Str, StrList, TenantId
from apps.memory_api.core.db import Base


class PlaybookRow(Base):
    """One playbook. Whoever changes its bullets holds this row's lock."""

    __tablename__ = "playbooks"
    __table_args__ = (
        UniqueConstraint("tenant_id", "project_id", "name"),
        ForeignKeyConstraint(["tenant_id", "scope"], ["scopes.tenant_id", "scopes.scope"]),
        CheckConstraint("review in ('off', 'required')", name="review"),
        CheckConstraint("holdout between 0 and 1", name="holdout"),
    )

    tenant_id: Mapped[TenantId]
    scope: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    project_id: Mapped[Str]
    name: Mapped[Str]
    version: Mapped[int] = mapped_column(server_default="0")
    active: Mapped[int] = mapped_column(server_default="0")
    """How many of its bullets are active."""
    sections: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)
    last_numbers: Mapped[Json]
    aliases: Mapped[Json]
    token_budget: Mapped[int | None]
    max_bullets: Mapped[int | None]
    review: Mapped[Str] = mapped_column(server_default="off")
    tidied_version: Mapped[int] = mapped_column(server_default="0")
    """The version up to which near-duplicates were looked for."""
    holdout: Mapped[float] = mapped_column(server_default="0")
    """Share of renders, 0..1, that leave out a bullet drawn by lot."""
    created_at: Mapped[Now]
    updated_at: Mapped[Now]
    deleted_at: Mapped[OptTime]


class PlaybookVersion(Base):
    """One change of a playbook. `sections` only where it differs from the version before."""

    __tablename__ = "playbook_versions"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "scope"], ["playbooks.tenant_id", "playbooks.scope"]),
        Index("playbook_versions_time_idx", "tenant_id", "scope", "created_at"),
    )

    tenant_id: Mapped[TenantId]
    scope: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    change: Mapped[Str]
    """`import`, `deltas`, `proposal`, `bullet`, `restore`, `settings` or `delete`."""
    added: Mapped[int]
    updated: Mapped[int]
    removed: Mapped[int]
    active: Mapped[int]
    sections: Mapped[Any] = mapped_column(JSONB(none_as_null=True), nullable=True)
    reason: Mapped[OptStr]
    actor: Mapped[OptStr]
    run_id: Mapped[UUID | None]
    created_at: Mapped[Now]


class BulletSpan(Base):
    """What a bullet said from version `since` up to, not including, `until`; written by the history
    trigger when it changes. 2^width <= until - since < 2^(width+1). `searchable_text` None: the one
    that follows from the other texts.
    """

    __tablename__ = "bullet_spans"
    __table_args__ = (
        CheckConstraint("since < until", name="length"),
        Index("bullet_spans_held_idx", "tenant_id", "scope", "width", "until", "since"),
    )

    tenant_id: Mapped[TenantId]
    bullet_id: Mapped[Id]
    until: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    since: Mapped[int]
    width: Mapped[int] = mapped_column(
        SmallInteger,
        Computed("length(ltrim((until - since)::bit(32)::text, '0')) - 1", persisted=True),
    )
    scope: Mapped[int]
    section: Mapped[OptStr]
    title: Mapped[OptStr]
    when_to_use: Mapped[OptStr]
    content: Mapped[Str]
    searchable_text: Mapped[OptStr]
    keywords: Mapped[StrList]
    tags: Mapped[StrList]
    status: Mapped[Str]
    pinned: Mapped[bool]


class BulletEvaluation(Base):
    """One verdict on one bullet. Of those of one trace, the counters hold the winning one."""

    __tablename__ = "bullet_evaluations"
    __table_args__ = (
        UniqueConstraint("tenant_id", "trace_id", "bullet_id", "judge"),
        ForeignKeyConstraint(["tenant_id", "bullet_id"], ["memories.tenant_id", "memories.id"]),
        CheckConstraint("judge in ('human', 'test', 'llm', 'rules', 'outcome')", name="judge"),
        CheckConstraint("tag in ('helpful', 'harmful', 'neutral')", name="tag"),
        Index("bullet_evaluations_bullet_idx", "tenant_id", "bullet_id"),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    bullet_id: Mapped[UUID]
    trace_id: Mapped[UUID | None]
    judge: Mapped[Str]
    tag: Mapped[Str]
    reason: Mapped[OptStr]
    evidence: Mapped[Json]
    render_id: Mapped[UUID | None]
    memory_id: Mapped[UUID | None]
    """The memory of kind `evaluation` by which the reason is found."""
    actor: Mapped[OptStr]
    run_id: Mapped[UUID | None]
    confirmed: Mapped[bool] = mapped_column(server_default=text("false"))
    """Of an outcome: whether a comparison within its task makes it count."""
    created_at: Mapped[Now]
    updated_at: Mapped[Now]


class Serving(Base):
    """What one search or render handed out; joined with the run that used it by `render_id`."""

    __tablename__ = "servings"
    __table_args__ = (
        CheckConstraint("kind in ('search', 'render')", name="kind"),
        Index("servings_listed_idx", "tenant_id", "scope", text("created_at desc")),
    )

    tenant_id: Mapped[TenantId]
    render_id: Mapped[Id]
    scope: Mapped[int]
    version: Mapped[int]
    kind: Mapped[Str]
    query: Mapped[Str]
    keys: Mapped[StrList]
    scores: Mapped[list[float]] = mapped_column(ARRAY(REAL), server_default=text("'{}'"))
    candidate: Mapped[OptStr]
    """The bullet drawn by lot, where bullets of this render could be held out."""
    held_out: Mapped[bool] = mapped_column(server_default=text("false"))
    """Whether the candidate was left out."""
    created_at: Mapped[Now]


class MemoryUsage(Base):
    """How often a memory was handed out; beside it, so that a read never rewrites a memory."""

    __tablename__ = "memory_usage"

    tenant_id: Mapped[TenantId]
    memory_id: Mapped[Id]
    uses: Mapped[int] = mapped_column(BigInteger)
    last_used_at: Mapped[Now]


class Proposal(Base):
    """Deltas that wait for a person, in a playbook with `review = required`."""

    __tablename__ = "playbook_proposals"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "scope"], ["playbooks.tenant_id", "playbooks.scope"]),
        CheckConstraint("state in ('waiting', 'accepted', 'rejected')", name="state"),
        Index(
            "playbook_proposals_listed_idx",
            "tenant_id",
            "scope",
            text("created_at desc"),
            text("id desc"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    scope: Mapped[int]
    state: Mapped[Str] = mapped_column(server_default="waiting")
    deltas: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)
    sources: Mapped[Json]
    """Index of a delta → ids of the memories it was derived from."""
    reason: Mapped[OptStr]
    actor: Mapped[OptStr]
    run_id: Mapped[UUID | None]
    version: Mapped[int | None]
    """The version that accepting it made."""
    decided_by: Mapped[OptStr]
    decided_reason: Mapped[OptStr]
    decided_at: Mapped[OptTime]
    created_at: Mapped[Now]
