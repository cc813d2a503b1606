"""Changes of collections and documents over the API. Each queues the run that carries it out."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import BinaryIO
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.collections import queries
from memory_api.collections.schemas import CreateCollectionRequest
from memory_api.collections.step import CHUNK
from memory_api.collections.tables import CollectionRow, DocumentRow
from memory_api.core.db import current_tenant_id, transaction_time
from memory_api.core.errors import Conflict, NotFound, PayloadTooLarge
from memory_api.core.ids import new_id
from memory_api.memories.index.scopes import ensure_scopes
from memory_api.runs.chain import enqueue_runs
from memory_api.runs.lifecycle import new_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

MAX_DOCUMENT_BYTES = 50 * 1024 * 1024
PART_BYTES = 1024 * 1024
"""Bytes of one row of `document_parts`."""


async def create_collection(
    session: AsyncSession, project_id: str, body: CreateCollectionRequest
) -> CollectionRow:
    """Raises `Conflict` if the project has a collection of this name."""
    scopes = await ensure_scopes(session, [(project_id, "collection", body.name)])
    existing = await queries.get_collection(session, project_id, body.name)
    if existing is not None and existing.state == "deleting":
        raise Conflict(f"The collection '{body.name}' is still being deleted. Try again later.")
    if existing is not None:
        raise Conflict(f"The collection '{body.name}' already exists.")
    collection = CollectionRow(
        tenant_id=current_tenant_id(session),
        id=new_id(),
        project_id=project_id,
        name=body.name,
        description=body.description,
        scope_id=next(iter(scopes.values())),
        chunk_tokens=body.chunk_tokens,
    )
    session.add(collection)
    await session.flush()
    await session.refresh(collection)
    return collection


async def require_collection(
    session: AsyncSession, project_id: str, name: str, *, for_update: bool = False
) -> CollectionRow:
    """A collection that is not being deleted. Raises `NotFound`."""
    collection = await queries.get_collection(session, project_id, name, for_update=for_update)
    if collection is None or collection.state != "active":
        raise NotFound("Collection not found.")
    return collection


async def require_document(
    session: AsyncSession, collection: CollectionRow, document_id: UUID, *, for_update: bool = False
) -> DocumentRow:
    document = await queries.get_document(session, document_id, for_update=for_update)
    if document is None or document.collection_id != collection.id:
        raise NotFound("Document not found.")
    return document


@dataclass(frozen=True)
class UploadedDocument:
    """A received document in a temporary file."""

    file: BinaryIO
    byte_count: int
    content_hash: bytes
    start: bytes
    """Its first bytes, for the detection of its type."""


async def receive_document(stream: AsyncIterator[bytes]) -> UploadedDocument:
    """Write a body to a temporary file. Raises `PayloadTooLarge`."""
    file = tempfile.SpooledTemporaryFile(max_size=PART_BYTES)  # noqa: SIM115 - closed by its deletion
    digest, size, start = hashlib.sha256(), 0, b""
    async for part in stream:
        size += len(part)
        if size > MAX_DOCUMENT_BYTES:
            file.close()
            raise PayloadTooLarge(
                f"The document is larger than the limit of {MAX_DOCUMENT_BYTES:,} bytes."
            )
        start = start if len(start) >= 16 else (start + part)[:16]
        digest.update(part)
        file.write(part)
    return UploadedDocument(file, size, digest.digest(), start)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class DocumentFacts:
    """What a request states about a document."""

    source: str
    title: str | None
    media_type: str


async def store_document(
    runtime: Runtime,
    session: AsyncSession,
    collection: CollectionRow,
    upload: UploadedDocument,
    facts: DocumentFacts,
) -> DocumentRow:
    """Store a document and queue its run. A document with the same source is replaced; one that has
    the same bytes too is returned unchanged, unless it failed.
    """
    document = await queries.get_document_by_source(session, collection.id, facts.source)
    if document is not None and document.state == "deleting":
        raise Conflict("A document of this source is still being deleted. Try again later.")
    if document is not None and _is_same(document, upload, facts):
        return document
    await runtime.queue.admit(session)
    if document is None:
        document = DocumentRow(
            tenant_id=current_tenant_id(session),
            id=new_id(),
            collection_id=collection.id,
            source=facts.source,
            generation=0,
        )
        session.add(document)
    document.title, document.media_type = facts.title, facts.media_type
    document.byte_count, document.content_hash = upload.byte_count, upload.content_hash
    document.page_count = None
    run = await _start_run(session, collection, document)
    await session.flush()
    await queries.replace_parts(session, document.id, list(_read_parts(upload.file)))
    await enqueue_runs(runtime.queue, session, run)
    await session.refresh(document)
    return document


def _is_same(document: DocumentRow, upload: UploadedDocument, facts: DocumentFacts) -> bool:
    return (
        document.state != "failed"
        and document.content_hash == upload.content_hash
        and document.media_type == facts.media_type
        and facts.title in (None, document.title)
    )


def _read_parts(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while part := file.read(PART_BYTES):
        yield part


async def _start_run(
    session: AsyncSession, collection: CollectionRow, document: DocumentRow, state: str = "queued"
) -> RunRow:
    """Give the document to a new run, which is not in the queue yet."""
    run = new_run(
        session,
        CHUNK,
        project_id=collection.project_id,
        input={"document_id": str(document.id), "collection": collection.name},
    )
    document.run_id, document.state, document.error = run.id, state, None
    document.generation += 1
    document.stored_chunk_count, document.chunk_count = 0, None
    document.updated_at = await transaction_time(session)
    return run


async def rechunk_collection(
    runtime: Runtime, session: AsyncSession, collection: CollectionRow, chunk_tokens: int
) -> int:
    """Split all readable documents again. Returns their number."""
    collection.chunk_tokens = chunk_tokens
    documents = [
        document
        for document in await queries.lock_documents(session, collection.id)
        if document.state in ("queued", "running", "done")
    ]
    await runtime.queue.admit(session, len(documents))
    runs = [await _start_run(session, collection, document) for document in documents]
    if runs:
        await enqueue_runs(runtime.queue, session, *runs)
    return len(runs)


async def delete_document(
    runtime: Runtime, session: AsyncSession, collection: CollectionRow, document: DocumentRow
) -> None:
    """Queue the removal of a document and its chunks."""
    if document.state == "deleting":
        return
    run = await _start_run(session, collection, document, "deleting")
    await enqueue_runs(runtime.queue, session, run)


async def delete_collection(
    runtime: Runtime, session: AsyncSession, collection: CollectionRow
) -> None:
    """Hide a collection and queue the removal of its documents."""
    collection.state = "deleting"
    await session.flush()
    for document in await queries.lock_documents(session, collection.id):
        await delete_document(runtime, session, collection, document)
    await queries.delete_collection_if_empty(session, collection.id)
