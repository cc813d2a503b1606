"""Requests about memories, and the search over all kinds of memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack

from hansei._request import (
    API,
    MAX_PAGE_SIZE,
    Id,
    Request,
    api_path,
    drop_none,
    get_request,
    query_request,
    write_request,
)
from hansei.types import (
    Json,
    Memory,
    MemoryKind,
    MemoryLink,
    MemoryRevision,
    MemoryStatus,
    Page,
    SearchMemoriesResponse,
    SearchOptions,
    StoredMemory,
)


class CreateMemoryOptions(TypedDict, total=False):
    project_id: str | None
    kind: MemoryKind
    title: str | None
    when_to_use: str | None
    keywords: list[str] | None
    tags: list[str] | None
    importance: float | None
    confidence: float | None
    source: str | None
    session_id: str | None
    trace_id: str | None
    metadata: Json | None
    reason: str | None


class UpdateMemoryOptions(TypedDict, total=False):
    """A field that is not given is unchanged. None clears `title` and `when_to_use`."""

    content: str
    title: str | None
    when_to_use: str | None
    keywords: list[str]
    tags: list[str]
    importance: float
    status: MemoryStatus
    pinned: bool
    reason: str | None


class SearchMemoriesOptions(SearchOptions, total=False):
    related: bool
    layers: Sequence[str] | None
    playbook: str | None


def create_memory(content: str, **options: Unpack[CreateMemoryOptions]) -> Request[StoredMemory]:
    """Store a memory without a call to a model."""
    return write_request("POST", f"{API}/memories", {"content": content, **drop_none(options)})


def list_memories(
    *,
    project_id: str | None = None,
    kind: Sequence[str] = (),
    layer: Sequence[str] = (),
    status: str | None = None,
    tag: Sequence[str] = (),
    trace_id: Id | None = None,
    limit: int = MAX_PAGE_SIZE,
) -> Request[Page[Memory]]:
    """List memories, newest first.

    Several kinds, layers or tags match any of them. `limit` is the page size.
    """
    return get_request(
        f"{API}/memories",
        project_id=project_id,
        kind=list(kind),
        layer=list(layer),
        status=status,
        tag=list(tag),
        trace_id=trace_id,
        limit=limit,
    )


def get_memory(memory_id: Id) -> Request[Memory]:
    """Get a memory."""
    return get_request(api_path("memories", memory_id))


def update_memory(memory_id: Id, **options: Unpack[UpdateMemoryOptions]) -> Request[StoredMemory]:
    """Change the given fields of a memory. Each change is a revision."""
    return write_request("PATCH", api_path("memories", memory_id), options)


def delete_memory(memory_id: Id, *, reason: str | None = None) -> Request[None]:
    """Delete a memory. Searches no longer find it; its revisions remain."""
    return write_request("DELETE", api_path("memories", memory_id), params={"reason": reason})


def list_memory_revisions(
    memory_id: Id, *, limit: int = MAX_PAGE_SIZE
) -> Request[Page[MemoryRevision]]:
    """List the revisions of a memory, oldest first. `limit` is the page size."""
    return get_request(api_path("memories", memory_id, "revisions"), limit=limit)


def list_memory_links(memory_id: Id, *, limit: int = MAX_PAGE_SIZE) -> Request[Page[MemoryLink]]:
    """List what a memory is derived from, what it supports and what supports it.

    `limit` is the page size.
    """
    return get_request(api_path("memories", memory_id, "links"), limit=limit)


def search_memories(
    query_text: str, **options: Unpack[SearchMemoriesOptions]
) -> Request[SearchMemoriesResponse]:
    """Search memories of any kind by meaning and by words (hybrid search)."""
    return query_request(f"{API}/search", {"query_text": query_text, **drop_none(options)})
