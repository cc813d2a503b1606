"""Memories over HTTP: create, read, update, delete, search."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from memory_api.api.deps import (
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Sanitized,
    Session,
    Writer,
    runtime_of,
)
from memory_api.api.problems import problems
from memory_api.api.route import RedactingRoute
from memory_api.core.errors import NotFound
from memory_api.core.pagination import (
    Cursor,
    parse_cursor_id,
    parse_cursor_time,
    to_page,
)
from memory_api.core.schemas import body_example
from memory_api.core.secret_redaction import redact
from memory_api.memories import editing, queries
from memory_api.memories.index.scopes import (
    ScopeAddress,
    ScopeArea,
    all_collection_scopes,
    all_playbook_scopes,
    kind_scope,
)
from memory_api.memories.schemas import (
    LAYER_BY_KIND,
    CreateMemoryRequest,
    Memory,
    MemoryHit,
    MemoryKind,
    MemoryLayer,
    MemoryLinkPage,
    MemoryPage,
    MemoryRevisionPage,
    RelatedMemory,
    SearchMemoriesRequest,
    SearchMemoriesResponse,
    SettableStatus,
    StoredMemory,
    UpdateMemoryRequest,
)
from memory_api.memories.search import search
from memory_api.memories.search.query import SearchHit, to_search_options
from memory_api.memories.tables import MemoryLinkRow, MemoryRow

router = APIRouter(prefix="/api/v1", tags=["memories"], route_class=RedactingRoute)

NEW_MEMORY = {
    "kind": "reflection",
    "content": "The refund failed: the order was pending; only delivered ones can be returned.",
    "tags": ["refund", "retail"],
    "importance": 0.7,
}
PATCH_MEMORY = {"importance": 0.9, "tags": ["refund"], "reason": "Seen three times this week."}
SEARCH = {
    "query_text": "refund of a pending order",
    "top_k": 5,
    "kinds": ["reflection", "strategy"],
}


@router.post(
    "/memories",
    status_code=201,
    summary="Store your own memory",
    openapi_extra=body_example(NEW_MEMORY),
)
async def create_memory(
    body: CreateMemoryRequest,
    runtime: RuntimeDep,
    caller: Writer,
    response: Response,
    sanitized: Sanitized,
) -> StoredMemory:
    """Stores a memory that the client wrote. No model is called."""
    project_id = caller.resolve_project(body.project_id)
    memory = await editing.create_memory(runtime, caller.tenant_id, project_id, body, caller.actor)
    response.headers["Location"] = f"/api/v1/memories/{memory.id}"
    return StoredMemory.from_row(memory).model_copy(update={"sanitized": sanitized})


@router.get("/memories", summary="List memories")
async def list_memories(
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    project_id: ProjectQuery,
    kind: Annotated[list[MemoryKind] | None, Query(description="Any of these kinds.")] = None,
    layer: Annotated[list[MemoryLayer] | None, Query(description="Any of these layers.")] = None,
    status: Annotated[
        SettableStatus, Query(description="Only memories with this status.")
    ] = "active",
    tag: Annotated[list[str] | None, Query(max_length=64, description="Any of these tags.")] = None,
    trace_id: Annotated[UUID | None, Query(description="Memories learned from this trace.")] = None,
    limit: Limit = 50,
) -> MemoryPage:
    """Lists the memories of a project, newest first. Repeat `kind`, `layer` or `tag` for several
    values.
    """
    rows = await queries.list_memories(
        session,
        project_id=caller.resolve_project(project_id),
        kinds=[k.value for k in kind or ()],
        layers=[x.value for x in layer or ()],
        statuses=[status],
        tags=tag or (),
        trace_id=trace_id,
        cursor=cursor,
        limit=limit,
    )
    return to_page(MemoryPage, rows, limit)


@router.get("/memories/{memory_id}", summary="Get a memory", responses=problems(404))
async def get_memory(memory_id: UUID, session: Session, caller: Reader) -> Memory:
    """Returns a memory that is not deleted."""
    return Memory.from_row(await _require_memory(session, memory_id, caller.project_id))


@router.patch(
    "/memories/{memory_id}",
    summary="Update a memory",
    responses=problems(404, 409),
    openapi_extra=body_example(PATCH_MEMORY),
)
async def update_memory(
    memory_id: UUID,
    body: UpdateMemoryRequest,
    runtime: RuntimeDep,
    caller: Writer,
    sanitized: Sanitized,
) -> StoredMemory:
    """Changes the fields that are sent; each change is a revision.

    Searches find only active memories. Answers 409 for a bullet, which its playbook changes.
    """
    await _check_project(runtime, caller, memory_id)
    memory = await editing.update_memory(runtime, caller.tenant_id, memory_id, body, caller.actor)
    return StoredMemory.from_row(memory).model_copy(update={"sanitized": sanitized})


@router.delete(
    "/memories/{memory_id}",
    status_code=204,
    summary="Delete a memory",
    responses=problems(404, 409),
)
async def delete_memory(
    memory_id: UUID,
    runtime: RuntimeDep,
    caller: Writer,
    reason: Annotated[
        str | None, Query(max_length=2000, description="Stored with the revision.")
    ] = None,
) -> None:
    """Deletes a memory: reads and searches no longer find it. Its revisions stay.

    Answers 409 for a bullet, which its playbook deletes.
    """
    await _check_project(runtime, caller, memory_id)
    clean = redact(reason).text if reason else None
    await editing.delete_memory(runtime, caller.tenant_id, memory_id, caller.actor, clean)


@router.get(
    "/memories/{memory_id}/revisions",
    summary="List the revisions of a memory",
    responses=problems(404),
)
async def list_memory_revisions(
    memory_id: UUID, session: Session, caller: Reader, cursor: CursorQuery, limit: Limit = 50
) -> MemoryRevisionPage:
    """Lists the states of a memory after each change, oldest first. Works for deleted memories."""
    await _require_memory(session, memory_id, caller.project_id, include_deleted=True)
    after = cursor.integer("memory_revisions") if cursor else None
    rows = await queries.list_revisions(session, memory_id, after=after, limit=limit)
    return to_page(
        MemoryRevisionPage,
        rows,
        limit,
        to_cursor=lambda row: Cursor("memory_revisions", (str(row.revision),)),
    )


@router.get(
    "/memories/{memory_id}/links",
    summary="List the links of a memory",
    responses=problems(404),
)
async def list_memory_links(
    memory_id: UUID, session: Session, caller: Reader, cursor: CursorQuery, limit: Limit = 50
) -> MemoryLinkPage:
    """Lists what a memory was derived from, what it supports and what supports it, oldest first."""
    await _require_memory(session, memory_id, caller.project_id)
    after = _link_position(cursor) if cursor else None
    rows = await queries.list_links(session, memory_id, after=after, limit=limit)
    return to_page(MemoryLinkPage, rows, limit, to_cursor=_link_cursor)


def _link_cursor(row: MemoryLinkRow) -> Cursor:
    key = (row.created_at.isoformat(), row.relation, row.target_id.hex, row.source_id.hex)
    return Cursor("memory_links", key)


def _link_position(cursor: Cursor) -> queries.LinkPosition:
    created_at, relation, target_id, source_id = cursor.texts("memory_links", 4)
    return (
        parse_cursor_time(created_at),
        relation,
        parse_cursor_id(target_id),
        parse_cursor_id(source_id),
    )


@router.post(
    "/search",
    summary="Search memories of any kind",
    responses=problems(404),
    openapi_extra=body_example(SEARCH),
)
async def search_memories(
    body: SearchMemoriesRequest, request: Request, caller: Reader
) -> SearchMemoriesResponse:
    """Hybrid full-text and vector search over all layers and kinds of a project, best first.

    An empty `query_text` orders by usefulness. By default a score means the same for every query:
    near 0 for a memory that has nothing to do with it. `explain` adds the cosine similarity and the
    BM25 score. Answers 404 for an unknown `playbook`.
    """
    runtime = runtime_of(request)
    addresses = _addresses(body, caller.resolve_project(body.project_id))
    options = to_search_options(body, runtime.settings)
    options["with_header"] = body.playbook is not None
    embedder = await runtime.get_tenant_embedder(caller.tenant_id)
    found = await search.search_memories(
        runtime.sessions, embedder, caller.tenant_id, body.query_text, addresses, **options
    )
    if body.playbook is not None and found.header is None:
        raise NotFound("Playbook not found.")
    results = [_hit_response(hit, body.explain) for hit in found.hits]
    if not body.related:
        return SearchMemoriesResponse(results=results)
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        project_id = caller.resolve_project(body.project_id)
        ids = [hit.memory.id for hit in found.hits]
        hits = await queries.find_related(session, project_id, ids, body.top_k)
    related = [RelatedMemory.from_row(hit) for hit in hits]
    return SearchMemoriesResponse(results=results, related=related)


def _addresses(body: SearchMemoriesRequest, project_id: str) -> list[ScopeAddress | ScopeArea]:
    """The scopes to search: one playbook, or the kinds and layers of the project. The kind `bullet`
    stands for the bullets of all its playbooks, and `chunk` also for those of all its collections.
    """
    if body.playbook is not None:
        return [(project_id, "playbook", body.playbook)]
    layers = set(body.layers)
    kinds = [k for k in body.kinds or list(MemoryKind) if not layers or LAYER_BY_KIND[k] in layers]
    scopes: list[ScopeAddress | ScopeArea] = [kind_scope(project_id, kind) for kind in kinds]
    if MemoryKind.BULLET in kinds:
        scopes.append(all_playbook_scopes(project_id))
    if MemoryKind.CHUNK in kinds:
        scopes.append(all_collection_scopes(project_id))
    return scopes


def _hit_response(hit: SearchHit, explain: bool) -> MemoryHit:
    return MemoryHit(
        memory=Memory.from_row(hit.memory),
        playbook=hit.playbook,
        vector_score=hit.vector_score,
        bm25_score=hit.bm25_score,
        combined_score=hit.combined_score,
        match=hit.match,
        explain=hit.explain() if explain else None,
    )


async def _require_memory(
    session: Session, memory_id: UUID, project_id: str | None, *, include_deleted: bool = False
) -> MemoryRow:
    """The memory. Raises `NotFound` also if it belongs to another project than the key's."""
    memory = await queries.get_memory(session, memory_id, include_deleted=include_deleted)
    if memory is None or project_id not in (None, memory.project_id):
        raise NotFound("Memory not found.")
    return memory


async def _check_project(runtime: RuntimeDep, caller: Writer, memory_id: UUID) -> None:
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        await _require_memory(session, memory_id, caller.project_id)
