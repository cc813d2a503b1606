"""Statements about collections, documents and their chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from sqlalchemy import and_, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.collections.tables import (
    CollectionRow,
    DocumentPageRow,
    DocumentPartRow,
    DocumentRow,
)
from memory_api.core.db import current_tenant_id
from memory_api.core.pagination import Cursor, keyset_page
from memory_api.memories.tables import MemoryLinkRow, MemoryRow

PART_OF = "part_of"
"""The relation of a chunk to its document."""


async def get_collection(
    session: AsyncSession, project_id: str, name: str, *, for_update: bool = False
) -> CollectionRow | None:
    query = select(CollectionRow).where(
        CollectionRow.tenant_id == current_tenant_id(session),
        CollectionRow.project_id == project_id,
        CollectionRow.name == name,
    )
    return await session.scalar(query.with_for_update() if for_update else query)


async def get_collection_by_id(
    session: AsyncSession, collection_id: UUID, *, for_update: bool = False
) -> CollectionRow | None:
    query = select(CollectionRow).where(
        CollectionRow.tenant_id == current_tenant_id(session), CollectionRow.id == collection_id
    )
    return await session.scalar(query.with_for_update() if for_update else query)


async def list_collections(
    session: AsyncSession, project_id: str, *, cursor: Cursor | None = None, limit: int = 200
) -> Sequence[CollectionRow]:
    """Newest first; one row more than `limit` when there is a next page."""
    query = select(CollectionRow).where(
        CollectionRow.tenant_id == current_tenant_id(session),
        CollectionRow.project_id == project_id,
    )
    query = keyset_page(query, CollectionRow.created_at, CollectionRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def count_documents(
    session: AsyncSession, collection_ids: Sequence[UUID]
) -> Mapping[UUID, tuple[int, int]]:
    """(documents, chunks that searches find) by collection."""
    rows = await session.execute(
        select(
            DocumentRow.collection_id,
            func.count(),
            func.coalesce(func.sum(DocumentRow.stored_chunk_count), 0),
        )
        .where(
            DocumentRow.tenant_id == current_tenant_id(session),
            DocumentRow.collection_id.in_(collection_ids),
        )
        .group_by(DocumentRow.collection_id)
    )
    return {collection_id: (documents, int(chunks)) for collection_id, documents, chunks in rows}


async def get_document(
    session: AsyncSession, document_id: UUID, *, for_update: bool = False
) -> DocumentRow | None:
    query = select(DocumentRow).where(
        DocumentRow.tenant_id == current_tenant_id(session), DocumentRow.id == document_id
    )
    if for_update:
        query = query.with_for_update().execution_options(populate_existing=True)
    return await session.scalar(query)


async def get_document_by_source(
    session: AsyncSession, collection_id: UUID, source: str
) -> DocumentRow | None:
    """The document, locked."""
    return await session.scalar(
        select(DocumentRow)
        .where(
            DocumentRow.tenant_id == current_tenant_id(session),
            DocumentRow.collection_id == collection_id,
            DocumentRow.source == source,
        )
        .with_for_update()
    )


async def list_documents(
    session: AsyncSession,
    collection_id: UUID,
    *,
    state: str | None = None,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Sequence[DocumentRow]:
    """Newest first; one row more than `limit` when there is a next page."""
    query = select(DocumentRow).where(
        DocumentRow.tenant_id == current_tenant_id(session),
        DocumentRow.collection_id == collection_id,
    )
    if state is not None:
        query = query.where(DocumentRow.state == state)
    query = keyset_page(query, DocumentRow.created_at, DocumentRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def lock_documents(session: AsyncSession, collection_id: UUID) -> Sequence[DocumentRow]:
    """All documents of a collection, locked in the order of their IDs."""
    found = await session.scalars(
        select(DocumentRow)
        .where(
            DocumentRow.tenant_id == current_tenant_id(session),
            DocumentRow.collection_id == collection_id,
        )
        .order_by(DocumentRow.id)
        .with_for_update()
    )
    return found.all()


async def replace_parts(session: AsyncSession, document_id: UUID, parts: Sequence[bytes]) -> None:
    """Store the bytes of a document in place of its earlier bytes and pages."""
    tenant = current_tenant_id(session)
    await delete_parts(session, document_id)
    await session.execute(
        delete(DocumentPageRow).where(
            DocumentPageRow.tenant_id == tenant, DocumentPageRow.document_id == document_id
        )
    )
    for number, data in enumerate(parts):
        await session.execute(
            insert(DocumentPartRow),
            [{"tenant_id": tenant, "document_id": document_id, "number": number, "data": data}],
        )


async def delete_parts(session: AsyncSession, document_id: UUID) -> None:
    await session.execute(
        delete(DocumentPartRow).where(
            DocumentPartRow.tenant_id == current_tenant_id(session),
            DocumentPartRow.document_id == document_id,
        )
    )


async def load_bytes(session: AsyncSession, document_id: UUID) -> bytes:
    """The bytes of a document; empty once its text is extracted."""
    parts = await session.scalars(
        select(DocumentPartRow.data)
        .where(
            DocumentPartRow.tenant_id == current_tenant_id(session),
            DocumentPartRow.document_id == document_id,
        )
        .order_by(DocumentPartRow.number)
    )
    return b"".join(parts)


async def insert_pages(session: AsyncSession, document_id: UUID, pages: Sequence[str]) -> None:
    tenant = current_tenant_id(session)
    await session.execute(
        insert(DocumentPageRow),
        [
            {"tenant_id": tenant, "document_id": document_id, "number": number, "text": text}
            for number, text in enumerate(pages, start=1)
        ],
    )


async def load_pages(session: AsyncSession, document_id: UUID) -> list[str]:
    pages = await session.scalars(
        select(DocumentPageRow.text)
        .where(
            DocumentPageRow.tenant_id == current_tenant_id(session),
            DocumentPageRow.document_id == document_id,
        )
        .order_by(DocumentPageRow.number)
    )
    return list(pages)


async def insert_chunk_links(
    session: AsyncSession, document_id: UUID, memory_ids: Sequence[UUID]
) -> None:
    """Link chunks to their document, by which they are found when it changes."""
    tenant = current_tenant_id(session)
    await session.execute(
        insert(MemoryLinkRow),
        [
            {
                "tenant_id": tenant,
                "source_id": memory_id,
                "relation": PART_OF,
                "target_kind": "document",
                "target_id": document_id,
            }
            for memory_id in memory_ids
        ],
    )


async def find_old_chunks(
    session: AsyncSession, document_id: UUID, generation: int, limit: int
) -> Sequence[MemoryRow]:
    """Chunks of a document that are not of this generation. Generation 0 finds all chunks."""
    found = await session.scalars(
        select(MemoryRow)
        .join(
            MemoryLinkRow,
            and_(
                MemoryLinkRow.tenant_id == MemoryRow.tenant_id,
                MemoryLinkRow.source_id == MemoryRow.id,
            ),
        )
        .where(
            MemoryRow.tenant_id == current_tenant_id(session),
            MemoryLinkRow.tenant_id == current_tenant_id(session),
            MemoryLinkRow.target_id == document_id,
            MemoryLinkRow.relation == PART_OF,
            MemoryRow.metadata_["generation"].as_integer() != generation,
        )
        .order_by(MemoryRow.id)
        .limit(limit)
    )
    return found.all()


async def delete_chunk_links(
    session: AsyncSession, document_id: UUID, memory_ids: Sequence[UUID]
) -> None:
    await session.execute(
        delete(MemoryLinkRow).where(
            MemoryLinkRow.tenant_id == current_tenant_id(session),
            MemoryLinkRow.target_id == document_id,
            MemoryLinkRow.source_id.in_(memory_ids),
        )
    )


async def delete_document_row(session: AsyncSession, document_id: UUID) -> None:
    await session.execute(
        delete(DocumentRow).where(
            DocumentRow.tenant_id == current_tenant_id(session), DocumentRow.id == document_id
        )
    )


async def delete_collection_if_empty(session: AsyncSession, collection_id: UUID) -> None:
    """Delete the row of a collection that is being deleted, once it has no documents."""
    tenant = current_tenant_id(session)
    documents = select(DocumentRow.id).where(
        DocumentRow.tenant_id == tenant, DocumentRow.collection_id == collection_id
    )
    await session.execute(
        delete(CollectionRow).where(
            CollectionRow.tenant_id == tenant,
            CollectionRow.id == collection_id,
            CollectionRow.state == "deleting",
            ~documents.exists(),
        )
    )


async def fail_document(
    session: AsyncSession, document_id: UUID, run_id: UUID, error: Mapping[str, str]
) -> None:
    """Record why a document cannot be loaded, unless a newer run works on it."""
    await session.execute(
        update(DocumentRow)
        .where(
            DocumentRow.tenant_id == current_tenant_id(session),
            DocumentRow.id == document_id,
            DocumentRow.run_id == run_id,
        )
        .values(state="failed", error=dict(error), updated_at=func.now())
    )
