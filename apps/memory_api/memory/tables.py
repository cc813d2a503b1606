"""Memories, and what makes them findable: vectors, postings, statistics; their links and their
history.

`memories` is wide and never indexed by vector. `memory_vectors` and `postings` hold what is served
and only that, keyed
(tenant, scope, …) so that a search costs what its scope holds (RETRIEVAL.md;
docs/decisions/search-keys.md).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Computed,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, REAL
from sqlalchemy.orm import Mapped, mapped_column

from apps.memory_api.core.columns import Id, Json, Now, OptStr, Str, StrList, TenantId
from apps.memory_api.core.db import Base, HalfVec


class Scope(Base):
    """What is searched together: a playbook, a collection, or one kind of memory of a project."""

    __tablename__ = "scopes"
    __table_args__ = (UniqueConstraint("tenant_id", "project_id", "area", "name"),)

    tenant_id: Mapped[TenantId]
    scope: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    project_id: Mapped[Str]
    area: Mapped[Str]
    name: Mapped[Str]
    created_at: Mapped[Now]


class Label(Base):
    """Small numbers for the names that search filters on (tags, sections, error categories,
    models): they keep
    the covering index narrow."""

    __tablename__ = "labels"
    __table_args__ = (UniqueConstraint("tenant_id", "space", "name"),)

    tenant_id: Mapped[TenantId]
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    space: Mapped[Str]
    name: Mapped[Str]


class Memory(Base):
    """One thing remembered."""

    __tablename__ = "memories"
    __table_args__ = (
        UniqueConstraint("tenant_id", "n"),
        ForeignKeyConstraint(["tenant_id", "scope"], ["scopes.tenant_id", "scopes.scope"]),
        CheckConstraint("importance between 0 and 1", name="importance"),
        CheckConstraint(
            "status in ('active', 'quarantined', 'archived', 'deleted')", name="status"
        ),
        Index(
            "memories_key_idx",
            "tenant_id",
            "scope",
            "key",
            unique=True,
            postgresql_where=text("key is not null"),
        ),
        Index(
            "memories_listed_idx",
            "tenant_id",
            "project_id",
            "kind",
            text("created_at desc"),
            text("id desc"),
        ),
        Index(
            "memories_aside_idx",
            "tenant_id",
            "scope",
            "n",
            postgresql_where=text("status = 'quarantined'"),
        ),
        Index("memories_said_idx", "tenant_id", "scope", "fingerprint"),
        Index("memories_tokenizer_idx", "tenant_id", "tokenizer"),
        Index(
            "memories_trace_idx",
            "tenant_id",
            "trace_id",
            postgresql_where=text("trace_id is not null"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    n: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    project_id: Mapped[Str]
    layer: Mapped[Str]
    kind: Mapped[Str]
    scope: Mapped[int]
    key: Mapped[OptStr]
    section: Mapped[OptStr]
    title: Mapped[OptStr]
    when_to_use: Mapped[OptStr]
    content: Mapped[Str]
    searchable_text: Mapped[Str]
    keywords: Mapped[StrList]
    tags: Mapped[StrList]
    importance: Mapped[float] = mapped_column(Double, server_default="0.5")
    strength: Mapped[float] = mapped_column(Double, server_default="1")
    confidence: Mapped[float | None] = mapped_column(Double)
    helpful: Mapped[int] = mapped_column(server_default="0")
    harmful: Mapped[int] = mapped_column(server_default="0")
    neutral: Mapped[int] = mapped_column(server_default="0")
    forgiven: Mapped[int] = mapped_column(server_default="0")
    """Harmful verdicts there were when a bullet was put back into service: they are not held
    against it again.
    """
    witnesses: Mapped[int] = mapped_column(server_default="1")
    confidence_score: Mapped[float] = mapped_column(
        Double,
        Computed(
            "case when helpful + harmful = 0 then 0.5"
            " else helpful::float8 / (helpful + harmful) end",
            persisted=True,
        ),
    )
    usefulness: Mapped[float] = mapped_column(Double, server_default=text("'0.05'"))
    status: Mapped[Str] = mapped_column(server_default="active")
    pinned: Mapped[bool] = mapped_column(server_default="false")
    source: Mapped[Str]
    error_category: Mapped[OptStr]
    outcome: Mapped[OptStr]
    session_id: Mapped[OptStr]
    trace_id: Mapped[UUID | None]
    source_event_ids: Mapped[StrList]
    metadata_: Mapped[Json] = mapped_column("metadata")
    terms: Mapped[list[int]] = mapped_column(ARRAY(Integer), server_default=text("'{}'"))
    tokenizer: Mapped[Str]
    fingerprint: Mapped[bytes] = mapped_column(LargeBinary)
    revision: Mapped[int] = mapped_column(server_default="1")
    version: Mapped[int | None]
    """The version of its playbook that last changed a bullet; a change must raise it."""
    place: Mapped[int | None]
    """Where a bullet stood in the file it was imported from."""
    change_reason: Mapped[OptStr]
    change_actor: Mapped[OptStr]
    change_run: Mapped[UUID | None]
    created_at: Mapped[Now]
    updated_at: Mapped[Now]


class MemoryVector(Base):
    """The dense leg: one covering row per served memory and model; an exact search never leaves the
    index.
    """

    __tablename__ = "memory_vectors"
    __table_args__ = (
        PrimaryKeyConstraint(
            "tenant_id",
            "scope",
            "model",
            "n",
            postgresql_include=[
                "kind",
                "section",
                "error_category",
                "confidence",
                "importance",
                "created_at",
                "tag_ids",
                "emb",
            ],
        ),
        {
            "postgresql_with": {
                "autovacuum_vacuum_insert_scale_factor": 0.02,
                "autovacuum_vacuum_scale_factor": 0.02,
            }
        },
    )

    tenant_id: Mapped[UUID]
    scope: Mapped[int]
    model: Mapped[int]
    n: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[int] = mapped_column(SmallInteger)
    section: Mapped[int | None]
    error_category: Mapped[int | None]
    confidence: Mapped[float] = mapped_column(REAL)
    importance: Mapped[float] = mapped_column(REAL)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    tag_ids: Mapped[list[int]] = mapped_column(ARRAY(Integer))
    emb: Mapped[Any] = mapped_column(HalfVec())


class Posting(Base):
    """The lexical leg: one row per term of a served memory; weight is BM25's document side, frozen
    at write time.
    """

    __tablename__ = "postings"
    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "scope", "term", "n", postgresql_include=["weight"]),
        {
            "postgresql_with": {
                "autovacuum_vacuum_insert_scale_factor": 0.02,
                "autovacuum_vacuum_scale_factor": 0.02,
            }
        },
    )

    tenant_id: Mapped[UUID]
    scope: Mapped[int]
    term: Mapped[int]
    n: Mapped[int] = mapped_column(BigInteger)
    weight: Mapped[float] = mapped_column(REAL)


class ScopeStat(Base):
    """How many memories a scope serves, as appended deltas: the sum is BM25's N, and inserts never
    wait for each other.
    """

    __tablename__ = "scope_stats"
    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "scope", "id", postgresql_include=["delta"]),
    )

    tenant_id: Mapped[UUID]
    scope: Mapped[int]
    id: Mapped[UUID]
    delta: Mapped[int]


class MemoryLink(Base):
    """`source` relation `target`; the target is a memory, a trace or one event of a trace."""

    __tablename__ = "memory_links"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "source_id"], ["memories.tenant_id", "memories.id"], ondelete="CASCADE"
        ),
        Index("memory_links_target_idx", "tenant_id", "target_id"),
    )

    tenant_id: Mapped[TenantId]
    source_id: Mapped[Id]
    relation: Mapped[Str] = mapped_column(primary_key=True)
    target_kind: Mapped[Str] = mapped_column(primary_key=True)
    target_id: Mapped[UUID] = mapped_column(primary_key=True)
    created_at: Mapped[Now]


class MemoryRevision(Base):
    """A memory as it was after one change; written by a trigger that the service cannot bypass."""

    __tablename__ = "memory_revisions"
    __table_args__ = (
        Index(
            "memory_revisions_changed_idx",
            "tenant_id",
            "scope",
            "version",
            "memory_id",
            postgresql_where=text("version is not null"),
        ),
    )

    tenant_id: Mapped[TenantId]
    memory_id: Mapped[Id]
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int | None]
    scope: Mapped[int]
    key: Mapped[OptStr]
    section: Mapped[OptStr]
    title: Mapped[OptStr]
    when_to_use: Mapped[OptStr]
    content: Mapped[Str]
    keywords: Mapped[StrList]
    tags: Mapped[StrList]
    importance: Mapped[float] = mapped_column(Double)
    status: Mapped[Str]
    pinned: Mapped[bool]
    reason: Mapped[OptStr]
    actor: Mapped[OptStr]
    run_id: Mapped[UUID | None]
    created_at: Mapped[Now]
