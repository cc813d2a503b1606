"""Tables of collections and their documents."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Now, OptJson, OptStr, Str, TenantId


class CollectionRow(Base):
    """A named set of documents. Its chunks are in the scope (project, `collection`, name)."""

    __tablename__ = "collections"
    __table_args__ = (
        UniqueConstraint("tenant_id", "scope_id"),
        ForeignKeyConstraint(["tenant_id", "scope_id"], ["scopes.tenant_id", "scopes.id"]),
        CheckConstraint("chunk_tokens between 64 and 2048", name="chunk_tokens"),
        CheckConstraint("state in ('active', 'deleting')", name="state"),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    project_id: Mapped[Str]
    name: Mapped[Str]
    description: Mapped[Str] = mapped_column(server_default="")
    scope_id: Mapped[int]
    chunk_tokens: Mapped[int] = mapped_column(server_default="256")
    state: Mapped[Str] = mapped_column(server_default="active")
    created_at: Mapped[Now]
    updated_at: Mapped[Now]


class DocumentRow(Base):
    """One document of a collection, identified by its `source`."""

    __tablename__ = "documents"
    __table_args__ = (
        UniqueConstraint("tenant_id", "collection_id", "source"),
        ForeignKeyConstraint(
            ["tenant_id", "collection_id"], ["collections.tenant_id", "collections.id"]
        ),
        CheckConstraint(
            "state in ('queued', 'running', 'done', 'failed', 'deleting')", name="state"
        ),
        Index(
            "documents_collection_id_created_at_idx",
            "tenant_id",
            "collection_id",
            text("created_at desc"),
            text("id desc"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    collection_id: Mapped[UUID]
    source: Mapped[Str]
    title: Mapped[OptStr]
    media_type: Mapped[Str]
    byte_count: Mapped[int]
    content_hash: Mapped[bytes] = mapped_column(LargeBinary)
    state: Mapped[Str] = mapped_column(server_default="queued")
    error: Mapped[OptJson]
    page_count: Mapped[int | None]
    chunk_count: Mapped[int | None]
    stored_chunk_count: Mapped[int] = mapped_column(server_default="0")
    generation: Mapped[int] = mapped_column(server_default="1")
    """Counts how often the document was split. Only chunks of the last generation stay."""
    run_id: Mapped[UUID | None]
    """The run that may change the document. A run that finds another one here stops."""
    created_at: Mapped[Now]
    updated_at: Mapped[Now]


def _of_document() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["tenant_id", "document_id"], ["documents.tenant_id", "documents.id"], ondelete="CASCADE"
    )


class DocumentPartRow(Base):
    """Bytes of a document until its text is extracted."""

    __tablename__ = "document_parts"
    __table_args__ = (_of_document(),)

    tenant_id: Mapped[TenantId]
    document_id: Mapped[Id]
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class DocumentPageRow(Base):
    """The extracted text of one page, with secrets replaced. Offsets of chunks refer to it."""

    __tablename__ = "document_pages"
    __table_args__ = (_of_document(),)

    tenant_id: Mapped[TenantId]
    document_id: Mapped[Id]
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    text: Mapped[Str]
