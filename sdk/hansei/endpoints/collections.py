"""Requests about collections and their documents."""

from __future__ import annotations

import mimetypes
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack

from hansei._request import (
    API,
    MAX_PAGE_SIZE,
    Id,
    Request,
    api_path,
    drop_none,
    get_request,
    query_params,
    query_request,
    write_request,
)
from hansei.types import Match, Page

MEDIA_TYPES = {".md": "text/markdown", ".markdown": "text/markdown"}
"""Suffixes that not every Python knows."""


class Collection(TypedDict):
    id: str
    project_id: str
    name: str
    description: str
    chunk_tokens: int
    state: str
    document_count: int
    chunk_count: int
    created_at: str


class Document(TypedDict):
    """A document and how far it is loaded (`progress`, 0 to 1)."""

    id: str
    source: str
    title: str | None
    media_type: str
    byte_count: int
    state: str
    error: Any
    progress: float
    page_count: int | None
    chunk_count: int | None
    run_id: str | None
    created_at: str
    updated_at: str


class RechunkedCollection(TypedDict):
    chunk_tokens: int
    document_count: int


class ChunkHit(TypedDict):
    """A chunk and its place: the offsets are in the text of the page, in characters."""

    memory_id: str
    document_id: str
    source: str
    title: str | None
    page: int
    start: int
    end: int
    content: str
    cosine: float
    combined_score: float
    match: Match | None


class SearchCollectionResponse(TypedDict):
    results: list[ChunkHit]


class CreateCollectionOptions(TypedDict, total=False):
    project_id: str | None
    description: str | None
    chunk_tokens: int | None


def create_collection(name: str, **options: Unpack[CreateCollectionOptions]) -> Request[Collection]:
    """Create an empty collection."""
    return write_request("POST", f"{API}/collections", {"name": name, **drop_none(options)})


def list_collections(
    *, project_id: str | None = None, limit: int = MAX_PAGE_SIZE
) -> Request[Page[Collection]]:
    """List the collections of a project, newest first. `limit` is the page size."""
    return get_request(f"{API}/collections", project_id=project_id, limit=limit)


def get_collection(name: str, *, project_id: str | None = None) -> Request[Collection]:
    """Get a collection with the numbers of its documents and chunks."""
    return get_request(api_path("collections", name), project_id=project_id)


def delete_collection(name: str, *, project_id: str | None = None) -> Request[None]:
    """Delete a collection. A worker removes its chunks from searches."""
    return write_request("DELETE", api_path("collections", name), params={"project_id": project_id})


def rechunk_collection(
    name: str, chunk_tokens: int, *, project_id: str | None = None
) -> Request[RechunkedCollection]:
    """Split all documents of a collection again, into chunks of another size."""
    return write_request(
        "POST",
        api_path("collections", name, "rechunk"),
        {"chunk_tokens": chunk_tokens},
        params={"project_id": project_id},
    )


def search_collection(
    name: str,
    query_text: str,
    *,
    top_k: int = 5,
    min_score: float = 0.0,
    min_match: Match | None = None,
    project_id: str | None = None,
) -> Request[SearchCollectionResponse]:
    """Search the chunks of a collection by meaning and by words."""
    body = {"query_text": query_text, "top_k": top_k, "min_score": min_score}
    body |= drop_none({"min_match": min_match})
    request: Request[SearchCollectionResponse] = query_request(
        api_path("collections", name, "search"), body
    )
    return Request(
        request.method,
        request.path,
        query_params({"project_id": project_id}),
        request.body,
        request.headers,
    )


def add_document(
    name: str,
    document: str | PathLike[str] | bytes,
    *,
    source: str | None = None,
    title: str | None = None,
    media_type: str | None = None,
    project_id: str | None = None,
) -> Request[Document]:
    """Add a document to a collection: the path of a file, or its bytes.

    A document with the same `source`, by default the path, is replaced. The same document again
    changes nothing, so a lost response can be retried. Wait for the run `run_id` with
    `wait_for_run`. Raises `OSError` if the file cannot be read.
    """
    if isinstance(document, bytes):
        content = document
    else:
        path = Path(document)
        content = path.read_bytes()
        source = source or path.as_posix()
        media_type = media_type or _guess_media_type(path)
    params = {"project_id": project_id, "source": source, "title": title}
    headers = {"Content-Type": media_type or "application/octet-stream"}
    return Request(
        "POST", api_path("collections", name, "documents"), query_params(params), content, headers
    )


def _guess_media_type(path: Path) -> str | None:
    return MEDIA_TYPES.get(path.suffix.lower()) or mimetypes.guess_type(path.name)[0]


def list_documents(
    name: str,
    *,
    state: str | None = None,
    project_id: str | None = None,
    limit: int = MAX_PAGE_SIZE,
) -> Request[Page[Document]]:
    """List the documents of a collection, newest first. `limit` is the page size."""
    return get_request(
        api_path("collections", name, "documents"), state=state, project_id=project_id, limit=limit
    )


def get_document(name: str, document_id: Id, *, project_id: str | None = None) -> Request[Document]:
    """Get a document with its state and progress."""
    return get_request(
        api_path("collections", name, "documents", document_id), project_id=project_id
    )


def delete_document(name: str, document_id: Id, *, project_id: str | None = None) -> Request[None]:
    """Delete a document. A worker removes its chunks from searches."""
    return write_request(
        "DELETE",
        api_path("collections", name, "documents", document_id),
        params={"project_id": project_id},
    )
