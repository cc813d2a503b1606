"""The run `chunk`: brings the chunks of one document up to date, or removes them.

It extracts the text, splits it, and stores chunks in batches. Each batch is one transaction that
also counts it on the document, so a run that is killed continues after its last batch. The row lock
of the document orders runs: a run that is no longer the document's own stops.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.collections import queries
from memory_api.collections.chunking import Chunk, split_pages
from memory_api.collections.extraction import (
    MAX_TITLE_LENGTH,
    UnreadableDocument,
    extract_isolated,
    read_isolated,
)
from memory_api.collections.tables import CollectionRow, DocumentRow
from memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from memory_api.memories.index.writer import insert_memories, unindex_memories
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

CHUNK = "chunk"
"""The kind of run. Its input has the `document_id`."""
BATCH_CHUNKS = 256
"""Chunks that one transaction stores or removes."""
MARKDOWN_TYPES = ("text/markdown", "text/html")


class _Superseded(Exception):
    """A newer run works on the document."""


@dataclass(frozen=True)
class _Work:
    """A document, its collection and its text. `pages` is empty before extraction."""

    document: DocumentRow
    collection: CollectionRow
    pages: list[str]
    data: bytes


@dataclass(frozen=True)
class _Stored:
    """What is stored of a document, except for its state."""

    page_count: int = 0
    chunk_count: int = 0


class ChunkStep(Step[_Work | None, _Stored | UnreadableDocument | None, StepResult]):
    """How a run of the kind `chunk` is executed. None stands for a document that another run works
    on.
    """

    kind = CHUNK
    can_resume = True

    async def load(self, session: AsyncSession, run: RunRow) -> _Work | None:
        try:
            return await _load_work(session, run)
        except _Superseded:
            return None

    async def compute(
        self, runtime: Runtime, run: RunRow, input: _Work | None
    ) -> _Stored | UnreadableDocument | None:
        if input is None:
            return None
        try:
            return await _update_chunks(runtime, run, input)
        except _Superseded:
            return None
        except UnreadableDocument as error:
            return error

    async def save(
        self,
        runtime: Runtime,
        session: AsyncSession,
        run: RunRow,
        output: _Stored | UnreadableDocument | None,
    ) -> StepResult:
        document_id = _document_id(run)
        if isinstance(output, UnreadableDocument):
            reason = {"code": output.code, "message": str(output)}
            await queries.fail_document(session, document_id, run.id, reason)
            await queries.delete_parts(session, document_id)
            return StepResult(data={"error": output.code})
        document = await queries.get_document(session, document_id, for_update=True)
        if output is None or document is None or document.run_id != run.id:
            return StepResult(data={"superseded": True})
        if document.state == "deleting":
            collection_id = document.collection_id
            await queries.delete_document_row(session, document_id)
            await queries.delete_collection_if_empty(session, collection_id)
            return StepResult(data={"document_id": str(document_id), "deleted": True})
        document.state, document.chunk_count, document.error = "done", output.chunk_count, None
        counts = {"pages": output.page_count, "chunks": output.chunk_count}
        return StepResult(data={"document_id": str(document_id), **counts})

    async def abandon(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, reason: str
    ) -> None:
        """Mark the document of a run that is out of attempts as failed. Its bytes stay, so that the
        run can be tried again.
        """
        error = {"code": "not_loaded", "message": f"The worker could not load it: {reason}"}
        await queries.fail_document(session, _document_id(run), run.id, error)


def _document_id(run: RunRow) -> UUID:
    return UUID(run.input["document_id"])


async def _update_chunks(runtime: Runtime, run: RunRow, work: _Work) -> _Stored:
    """Bring the chunks up to date; remove all of a document that is deleted."""
    if work.document.state == "deleting":
        await _remove_chunks(runtime, run, work.document.id, generation=0)
        return _Stored()
    pages = work.pages or await _extract_pages(runtime, run, work)
    has_headings = work.document.media_type in MARKDOWN_TYPES
    size = sum(map(len, pages))
    split = partial(split_pages, pages, work.collection.chunk_tokens, has_headings=has_headings)
    chunks = await read_isolated(split, size, run.tenant_id)
    await _store_chunks(runtime, run, work, chunks)
    await _remove_chunks(runtime, run, work.document.id, generation=work.document.generation)
    return _Stored(len(pages), len(chunks))


async def _require_own(session: AsyncSession, run: RunRow, document_id: UUID) -> DocumentRow:
    """The document, locked. Raises `_Superseded` if another run works on it."""
    document = await queries.get_document(session, document_id, for_update=True)
    if document is None or document.run_id != run.id:
        raise _Superseded
    return document


async def _load_work(session: AsyncSession, run: RunRow) -> _Work:
    document = await _require_own(session, run, _document_id(run))
    collection = await queries.get_collection_by_id(session, document.collection_id)
    assert collection is not None, "a foreign key"
    if document.state == "deleting":
        return _Work(document, collection, [], b"")
    document.state = "running"
    pages = await queries.load_pages(session, document.id)
    return _Work(
        document,
        collection,
        pages,
        b"" if pages else await queries.load_bytes(session, document.id),
    )


async def _extract_pages(runtime: Runtime, run: RunRow, work: _Work) -> list[str]:
    """Extract the text, store it by page and drop the bytes."""
    document = work.document
    extracted = await extract_isolated(work.data, document.media_type, run.tenant_id)
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        current = await _require_own(session, run, document.id)
        await queries.insert_pages(session, document.id, extracted.pages)
        await queries.delete_parts(session, document.id)
        current.page_count = len(extracted.pages)
        current.title = document.title = document.title or extracted.title
    return extracted.pages


async def _store_chunks(runtime: Runtime, run: RunRow, work: _Work, chunks: list[Chunk]) -> None:
    """Store the chunks that are not stored yet."""
    embedder = await runtime.get_tenant_embedder(run.tenant_id)
    stored = work.document.stored_chunk_count
    while stored < len(chunks):
        batch = chunks[stored : stored + BATCH_CHUNKS]
        drafts = [_draft(work, run, stored + n, chunk) for n, chunk in enumerate(batch)]
        items = await prepare_memories(embedder, drafts)
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            document = await _require_own(session, run, work.document.id)
            if document.stored_chunk_count != stored:
                raise _Superseded  # another worker took this run over
            await insert_memories(session, items)
            memory_ids = [draft.id for draft in drafts]
            await queries.insert_chunk_links(session, document.id, memory_ids)
            stored += len(batch)
            document.stored_chunk_count, document.chunk_count = stored, len(chunks)


def _draft(work: _Work, run: RunRow, number: int, chunk: Chunk) -> MemoryDraft:
    document, collection = work.document, work.collection
    parts = [document.title or document.source, *chunk.headings]
    titles = list(dict.fromkeys(parts))  # a document's title is often its first heading
    return MemoryDraft(
        kind=MemoryKind.CHUNK,
        project_id=collection.project_id,
        content=chunk.text,
        address=(collection.project_id, "collection", collection.name),
        title=" › ".join(titles)[:MAX_TITLE_LENGTH],
        source=document.source,
        metadata={
            "collection": collection.name,
            "document_id": str(document.id),
            "generation": document.generation,
            "number": number,
            "page": chunk.page,
            "start": chunk.start,
            "end": chunk.end,
        },
        actor="run",
        run_id=run.id,
    )


async def _remove_chunks(
    runtime: Runtime, run: RunRow, document_id: UUID, *, generation: int
) -> None:
    """Remove the chunks that are not of this generation from the index, in batches."""
    while True:
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            await _require_own(session, run, document_id)
            old = await queries.find_old_chunks(session, document_id, generation, BATCH_CHUNKS)
            if not old:
                return
            active = [memory for memory in old if memory.status != MemoryStatus.DELETED]
            await unindex_memories(session, active)
            for memory in active:
                memory.status = MemoryStatus.DELETED
                memory.change_actor, memory.change_run_id = "run", run.id
            await session.flush()
            await queries.delete_chunk_links(session, document_id, [memory.id for memory in old])
