"""Tables of memories, the search index, links and revisions.

`memories` is wide and never indexed by vector. The search index consists of `memory_vectors`,
`postings` and `scope_stats`. It contains active memories only. Its keys begin with tenant and
scope, so the cost of a search depends on the size of its scopes (docs/decisions/search-keys.md).
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

from memory_api.core.db import Base, HalfVec, Id, Json, Now, OptStr, Str, StrList, TenantId


class ScopeRow(Base):
    """The unit of search statistics: a playbook, a collection, or one kind of memory in a
    project.
    """

    __tablename__ = "scopes"
    __table_args__ = (UniqueConstraint("tenant_id", "project_id", "type", "name"),)

    tenant_id: Mapped[TenantId]
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    project_id: Mapped[Str]
    type: Mapped[Str]
    name: Mapped[Str]
    created_at: Mapped[Now]


class LabelRow(Base):
    """Small integers for the names that search filters on: tags, sections, error categories,
    models. They keep the covering index narrow.
    """

    __tablename__ = "labels"
    __table_args__ = (UniqueConstraint("tenant_id", "type", "name"),)

    tenant_id: Mapped[TenantId]
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[Str]
    name: Mapped[Str]


class MemoryRow(Base):
    __tablename__ = "memories"
    __table_args__ = (
        UniqueConstraint("tenant_id", "seq"),
        ForeignKeyConstraint(["tenant_id", "scope_id"], ["scopes.tenant_id", "scopes.id"]),
        CheckConstraint("importance between 0 and 1", name="importance"),
        CheckConstraint(
            "status in ('active', 'quarantined', 'archived', 'deleted')", name="status"
        ),
        Index(
            "memories_scope_id_key_idx",
            "tenant_id",
            "scope_id",
            "key",
            unique=True,
            postgresql_where=text("key is not null"),
        ),
        Index(
            "memories_project_id_kind_created_at_idx",
            "tenant_id",
            "project_id",
            "kind",
            text("created_at desc"),
            text("id desc"),
        ),
        Index(
            "memories_scope_id_seq_idx",
            "tenant_id",
            "scope_id",
            "seq",
            postgresql_where=text("status = 'quarantined'"),
        ),
        Index("memories_scope_id_fingerprint_idx", "tenant_id", "scope_id", "fingerprint"),
        Index("memories_tokenizer_idx", "tenant_id", "tokenizer"),
        Index(
            "memories_trace_id_idx",
            "tenant_id",
            "trace_id",
            postgresql_where=text("trace_id is not null"),
        ),
        Index(
            "memories_session_id_idx",
            "tenant_id",
            "project_id",
            "session_id",
            "created_at",
            postgresql_where=text("session_id is not null and kind = 'episode'"),
        ),
        Index(
            *("memories_session_summaries_idx", "tenant_id", "project_id", "session_id"),
            postgresql_where=text("source = 'session_summary' and kind = 'episode'"),
        ),
        Index(
            "memories_subject_idx",
            "tenant_id",
            text("(metadata ->> 'subject')"),
            postgresql_where=text("(metadata ->> 'subject') is not null"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    seq: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    project_id: Mapped[Str]
    layer: Mapped[Str]
    kind: Mapped[Str]
    scope_id: Mapped[int]
    key: Mapped[OptStr]
    section: Mapped[OptStr]
    title: Mapped[OptStr]
    when_to_use: Mapped[OptStr]
    content: Mapped[Str]
    searchable_text: Mapped[Str]
    keywords: Mapped[StrList]
    tags: Mapped[StrList]
    importance: Mapped[float] = mapped_column(Double, server_default="0.5")
    confidence: Mapped[float | None] = mapped_column(Double)
    helpful: Mapped[int] = mapped_column(server_default="0")
    harmful: Mapped[int] = mapped_column(server_default="0")
    neutral: Mapped[int] = mapped_column(server_default="0")
    harmful_at_release: Mapped[int] = mapped_column(server_default="0")
    """Harmful verdicts when the bullet was last activated. Quarantine ignores them."""
    observation_count: Mapped[int] = mapped_column(server_default="1")
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
    awaiting_confirmation: Mapped[bool] = mapped_column(server_default="false")
    """Whether a quarantined lesson or bullet quotes outside text that one trace contained."""
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
    playbook_version: Mapped[int | None]
    """The version of the playbook that last changed the bullet. Each change must raise it."""
    position: Mapped[int | None]
    """Position of the bullet in the file from which it was imported."""
    change_reason: Mapped[OptStr]
    change_actor: Mapped[OptStr]
    change_run_id: Mapped[UUID | None]
    created_at: Mapped[Now]
    updated_at: Mapped[Now]


class MemoryVectorRow(Base):
    """One row per active memory and embedding model. The covering key answers an exact vector
    search without reading the table.
    """

    __tablename__ = "memory_vectors"
    __table_args__ = (
        PrimaryKeyConstraint(
            "tenant_id",
            "scope_id",
            "model_label_id",
            "seq",
            postgresql_include=[
                "kind_id",
                "section_label_id",
                "error_label_id",
                "confidence",
                "importance",
                "created_at",
                "tag_label_ids",
                "embedding",
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
    scope_id: Mapped[int]
    model_label_id: Mapped[int]
    seq: Mapped[int] = mapped_column(BigInteger)
    kind_id: Mapped[int] = mapped_column(SmallInteger)
    section_label_id: Mapped[int | None]
    error_label_id: Mapped[int | None]
    confidence: Mapped[float] = mapped_column(REAL)
    importance: Mapped[float] = mapped_column(REAL)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    tag_label_ids: Mapped[list[int]] = mapped_column(ARRAY(Integer))
    embedding: Mapped[Any] = mapped_column(HalfVec())


class PostingRow(Base):
    """One row per term of an active memory. `weight` is the document side of BM25, computed when
    the row is written.
    """

    __tablename__ = "postings"
    __table_args__ = (
        PrimaryKeyConstraint(
            "tenant_id", "scope_id", "term_id", "seq", postgresql_include=["weight"]
        ),
        {
            "postgresql_with": {
                "autovacuum_vacuum_insert_scale_factor": 0.02,
                "autovacuum_vacuum_scale_factor": 0.02,
            }
        },
    )

    tenant_id: Mapped[UUID]
    scope_id: Mapped[int]
    term_id: Mapped[int]
    seq: Mapped[int] = mapped_column(BigInteger)
    weight: Mapped[float] = mapped_column(REAL)


class ScopeStatRow(Base):
    """Number of indexed memories of a scope (N of BM25), as a sum of appended deltas, so that
    inserts do not wait for each other.
    """

    __tablename__ = "scope_stats"
    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "scope_id", "id", postgresql_include=["delta"]),
    )

    tenant_id: Mapped[UUID]
    scope_id: Mapped[int]
    id: Mapped[UUID]
    delta: Mapped[int]


class MemoryLinkRow(Base):
    """A link from a memory to a memory, a trace or an event of a trace."""

    __tablename__ = "memory_links"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "source_id"], ["memories.tenant_id", "memories.id"], ondelete="CASCADE"
        ),
        Index("memory_links_target_id_idx", "tenant_id", "target_id"),
    )

    tenant_id: Mapped[TenantId]
    source_id: Mapped[Id]
    relation: Mapped[Str] = mapped_column(primary_key=True)
    target_kind: Mapped[Str] = mapped_column(primary_key=True)
    target_id: Mapped[UUID] = mapped_column(primary_key=True)
    created_at: Mapped[Now]


class EntityRow(Base):
    """A tool, an error category, a file or a library that memories of a project mention."""

    __tablename__ = "entities"
    __table_args__ = (
        UniqueConstraint("tenant_id", "project_id", "type", "name"),
        CheckConstraint("type in ('tool', 'error', 'file', 'library')", name="type"),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    project_id: Mapped[Str]
    type: Mapped[Str]
    name: Mapped[Str]
    created_at: Mapped[Now]


class MemoryEntityRow(Base):
    __tablename__ = "memory_entities"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "memory_id"], ["memories.tenant_id", "memories.id"], ondelete="CASCADE"
        ),
        ForeignKeyConstraint(
            ["tenant_id", "entity_id"], ["entities.tenant_id", "entities.id"], ondelete="CASCADE"
        ),
        Index("memory_entities_entity_id_idx", "tenant_id", "entity_id"),
    )

    tenant_id: Mapped[TenantId]
    memory_id: Mapped[Id]
    entity_id: Mapped[Id]


class MemoryClusterRow(Base):
    """The cluster of a memory, named by its oldest member."""

    __tablename__ = "memory_clusters"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "memory_id"], ["memories.tenant_id", "memories.id"], ondelete="CASCADE"
        ),
        Index("memory_clusters_cluster_id_idx", "tenant_id", "cluster_id"),
    )

    tenant_id: Mapped[TenantId]
    memory_id: Mapped[Id]
    cluster_id: Mapped[UUID]


class TombstoneRow(Base):
    """Something that was erased, without its content. The ID of a person is a hash."""

    __tablename__ = "tombstones"

    tenant_id: Mapped[TenantId]
    target_kind: Mapped[Str] = mapped_column(primary_key=True)
    target_id: Mapped[Str] = mapped_column(primary_key=True)
    erasure_id: Mapped[UUID | None]
    reason: Mapped[OptStr]
    actor: Mapped[OptStr]
    erased_at: Mapped[Now]


class MemoryRevisionRow(Base):
    """A memory after one change. Written by a trigger that the service cannot bypass."""

    __tablename__ = "memory_revisions"
    __table_args__ = (
        Index(
            "memory_revisions_scope_id_playbook_version_idx",
            "tenant_id",
            "scope_id",
            "playbook_version",
            "memory_id",
            postgresql_where=text("playbook_version is not null"),
        ),
    )

    tenant_id: Mapped[TenantId]
    memory_id: Mapped[Id]
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    playbook_version: Mapped[int | None]
    scope_id: Mapped[int]
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
    change_reason: Mapped[OptStr]
    change_actor: Mapped[OptStr]
    change_run_id: Mapped[UUID | None]
    change_type: Mapped[Str] = mapped_column(server_default="created")
    """`created`, `changed`, `quarantined`, `released`, `archived`, `deleted` or `restored`. A
    trigger sets it.
    """
    created_at: Mapped[Now]
