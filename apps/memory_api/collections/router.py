"""Collections over HTTP: create, list, search, re-chunk, delete; add and read documents."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator

from memory_api.api.bodies import UnsupportedMediaType, media_type
from memory_api.api.deps import (
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Session,
    Writer,
)
from memory_api.api.problems import problems
from memory_api.api.route import ApiRoute, RedactingRoute
from memory_api.collections import documents, queries
from memory_api.collections.extraction import choose_media_type
from memory_api.collections.passages import search_passages
from memory_api.collections.schemas import (
    COLLECTION,
    ChunkHit,
    Collection,
    CollectionPage,
    CreateCollectionRequest,
    Document,
    DocumentPage,
    RechunkCollectionRequest,
    RechunkedCollection,
    SearchCollectionRequest,
    SearchCollectionResponse,
)
from memory_api.collections.tables import CollectionRow, DocumentRow
from memory_api.core.pagination import to_page
from memory_api.core.schemas import body_example
from memory_api.core.secret_redaction import redact
from memory_api.runtime import Runtime

router = APIRouter(prefix="/api/v1/collections", tags=["collections"], route_class=RedactingRoute)


class DocumentRoute(ApiRoute):
    """A route whose body is a document."""

    max_body = documents.MAX_DOCUMENT_BYTES


document_router = APIRouter(
    prefix="/api/v1/collections", tags=["collections"], route_class=DocumentRoute
)

NEW_COLLECTION = {name: COLLECTION[name] for name in ("name", "description", "chunk_tokens")}
DOCUMENT_BODY = {
    "requestBody": {
        "required": True,
        "description": "The document, up to 50 MB.",
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            "text/markdown": {
                "schema": {"type": "string"},
                "example": "# Refunds\n\nA pending order cannot be refunded. Cancel it.\n",
            },
            "text/html": {"schema": {"type": "string"}},
            "application/pdf": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


def collection_response(row: CollectionRow, counts: tuple[int, int] = (0, 0)) -> Collection:
    return Collection(
        id=row.id,
        project_id=row.project_id,
        name=row.name,
        description=row.description,
        chunk_tokens=row.chunk_tokens,
        state=row.state,
        document_count=counts[0],
        chunk_count=counts[1],
        created_at=row.created_at,
    )


def document_response(row: DocumentRow) -> Document:
    total = row.chunk_count
    progress = 1.0 if row.state == "done" else row.stored_chunk_count / total if total else 0.0
    return Document(
        id=row.id,
        source=row.source,
        title=row.title,
        media_type=row.media_type,
        byte_count=row.byte_count,
        state=row.state,
        error=row.error,
        progress=progress,
        page_count=row.page_count,
        chunk_count=row.chunk_count,
        run_id=row.run_id,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


@router.post(
    "",
    status_code=201,
    summary="Create a collection",
    responses=problems(409),
    openapi_extra=body_example(NEW_COLLECTION),
)
async def create_collection(
    body: CreateCollectionRequest, session: Session, caller: Writer
) -> Collection:
    """Creates an empty collection. Answers 409 if the project has one of this name."""
    project_id = caller.resolve_project(body.project_id)
    return collection_response(await documents.create_collection(session, project_id, body))


@router.get("", summary="List collections", responses=problems(422))
async def list_collections(
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    project_id: ProjectQuery,
    limit: Limit = 50,
) -> CollectionPage:
    """Lists the collections of a project with the numbers of their documents and chunks."""
    project = caller.resolve_project(project_id)
    rows = await queries.list_collections(session, project, cursor=cursor, limit=limit)
    counts = await queries.count_documents(session, [row.id for row in rows])
    return to_page(
        CollectionPage,
        rows,
        limit,
        lambda row: collection_response(row, counts.get(row.id, (0, 0))),
    )


@router.get("/{collection}", summary="Get a collection", responses=problems(404))
async def get_collection(
    collection: str, session: Session, caller: Reader, project_id: ProjectQuery
) -> Collection:
    """Returns a collection with the numbers of its documents and chunks."""
    project = caller.resolve_project(project_id)
    row = await documents.require_collection(session, project, collection)
    counts = await queries.count_documents(session, [row.id])
    return collection_response(row, counts.get(row.id, (0, 0)))


@router.delete(
    "/{collection}", status_code=204, summary="Delete a collection", responses=problems(404)
)
async def delete_collection(
    collection: str, runtime: RuntimeDep, session: Session, caller: Writer, project_id: ProjectQuery
) -> None:
    """Deletes a collection. A worker removes its chunks from searches."""
    project = caller.resolve_project(project_id)
    row = await documents.require_collection(session, project, collection, for_update=True)
    await documents.delete_collection(runtime, session, row)


@router.post(
    "/{collection}/rechunk",
    status_code=202,
    summary="Split the documents again",
    responses=problems(404, "queue_full"),
    openapi_extra=body_example({"chunk_tokens": 512}),
)
async def rechunk_collection(
    collection: str,
    body: RechunkCollectionRequest,
    runtime: RuntimeDep,
    session: Session,
    caller: Writer,
    project_id: ProjectQuery,
) -> RechunkedCollection:
    """Splits all documents into chunks of another size. Searches find the earlier chunks of a
    document until its new ones are stored.
    """
    project = caller.resolve_project(project_id)
    row = await documents.require_collection(session, project, collection, for_update=True)
    count = await documents.rechunk_collection(runtime, session, row, body.chunk_tokens)
    return RechunkedCollection(chunk_tokens=body.chunk_tokens, document_count=count)


@router.post(
    "/{collection}/search",
    summary="Search a collection",
    responses=problems(404),
    openapi_extra=body_example({"query_text": "refund of a pending order", "top_k": 3}),
)
async def search_collection(
    collection: str,
    body: SearchCollectionRequest,
    runtime: RuntimeDep,
    caller: Reader,
    project_id: ProjectQuery,
) -> SearchCollectionResponse:
    """Hybrid full-text and vector search over the chunks of a collection, best first."""
    project = caller.resolve_project(project_id)
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        row = await documents.require_collection(session, project, collection)
    found = await search_passages(
        runtime,
        caller.tenant_id,
        project,
        [row.name],
        body.query_text,
        top_k=body.top_k,
        min_match=body.min_match,
    )
    hits = [
        ChunkHit.model_validate(hit, from_attributes=True)
        for hit in found
        if hit.cosine >= body.min_score
    ]
    return SearchCollectionResponse(results=hits)


_LINE_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _check_line(value: str | None) -> str | None:
    """Source and title head each passage that a model reads."""
    if value and _LINE_BREAKS.search(value):
        raise ValueError("must not contain line breaks and other control characters")
    return value


def _check_source(source: str | None) -> str | None:
    """A source is shown and never opened. This is for those who do."""
    if source and ".." in re.split(r"[/\\]", source):
        raise ValueError("must not contain the folder `..`")
    return _check_line(source)


SourceQuery = Annotated[
    str | None,
    AfterValidator(_check_source),
    Query(
        min_length=1,
        max_length=1_000,
        description="File name or URL of the document. A document with the same source is "
        "replaced. Default: derived from the content.",
    ),
]
TitleQuery = Annotated[
    str | None,
    Query(min_length=1, max_length=200, description="Shown with citations."),
    AfterValidator(_check_line),
]


@document_router.post(
    "/{collection}/documents",
    status_code=202,
    summary="Add a document",
    responses=problems(404, 409, 415, "queue_full"),
    openapi_extra=DOCUMENT_BODY,
)
async def add_document(
    collection: str,
    request: Request,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    project_id: ProjectQuery,
    source: SourceQuery = None,
    title: TitleQuery = None,
) -> Document:
    """Stores a document and queues a run that makes it searchable; poll its `state` or the run.

    The body is the document: plain text, Markdown, HTML or PDF, up to 50 MB. Sending the same
    document again changes nothing; another document with the same `source` replaces it. A
    document without readable text becomes `failed` with the reason in `error`.
    """
    project = caller.resolve_project(project_id)
    content_type = media_type(request.headers.get("content-type", ""))
    stored = await upload_document(
        runtime,
        caller.tenant_id,
        (project, collection),
        request.stream(),
        content_type,
        source=source,
        title=title,
    )
    response.headers["Location"] = f"/api/v1/collections/{collection}/documents/{stored.id}"
    return stored


async def upload_document(
    runtime: Runtime,
    tenant_id: UUID,
    place: tuple[str, str],
    stream: AsyncIterator[bytes],
    content_type: str,
    *,
    source: str | None,
    title: str | None,
) -> Document:
    """Read a document from `stream` and store it in a collection. `place`: the names of the
    project and the collection.
    Raises `NotFound`, `PayloadTooLarge` and `UnsupportedMediaType`.
    """
    project, name = place
    upload = await documents.receive_document(stream)
    with upload.file:
        source = redact(source).text if source else f"sha256:{upload.content_hash.hex()[:16]}"
        kind = choose_media_type(content_type, source, upload.start)
        async with runtime.sessions.for_tenant(tenant_id) as session:
            collection = await documents.require_collection(session, project, name, for_update=True)
            if kind is None:
                raise UnsupportedMediaType(
                    "The document must be text/plain, text/markdown, text/html or application/pdf."
                    " Send its `Content-Type`."
                )
            facts = documents.DocumentFacts(source, redact(title).text if title else None, kind)
            document = await documents.store_document(runtime, session, collection, upload, facts)
            return document_response(document)


@router.get("/{collection}/documents", summary="List documents", responses=problems(404, 422))
async def list_documents(
    collection: str,
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    project_id: ProjectQuery,
    state: Annotated[
        Literal["queued", "running", "done", "failed", "deleting"] | None,
        Query(description="Only documents in this state."),
    ] = None,
    limit: Limit = 50,
) -> DocumentPage:
    """Lists the documents of a collection, newest first."""
    row = await documents.require_collection(
        session, caller.resolve_project(project_id), collection
    )
    rows = await queries.list_documents(session, row.id, state=state, cursor=cursor, limit=limit)
    return to_page(DocumentPage, rows, limit, document_response)


@router.get(
    "/{collection}/documents/{document_id}", summary="Get a document", responses=problems(404)
)
async def get_document(
    collection: str, document_id: UUID, session: Session, caller: Reader, project_id: ProjectQuery
) -> Document:
    """Returns a document with its state and progress."""
    row = await documents.require_collection(
        session, caller.resolve_project(project_id), collection
    )
    return document_response(await documents.require_document(session, row, document_id))


@router.delete(
    "/{collection}/documents/{document_id}",
    status_code=204,
    summary="Delete a document",
    responses=problems(404),
)
async def delete_document(
    collection: str,
    document_id: UUID,
    runtime: RuntimeDep,
    session: Session,
    caller: Writer,
    project_id: ProjectQuery,
) -> None:
    """Deletes a document. A worker removes its chunks from searches."""
    row = await documents.require_collection(
        session, caller.resolve_project(project_id), collection
    )
    document = await documents.require_document(session, row, document_id, for_update=True)
    await documents.delete_document(runtime, session, row, document)
