"""Memories over HTTP: bring your own, read, change, forget, search."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response

from apps.memory_api.api_route import SecretlessRoute
from apps.memory_api.core.cursor import page
from apps.memory_api.core.errors import NotFound
from apps.memory_api.core.openapi import example
from apps.memory_api.core.schemas import Page
from apps.memory_api.deps import (
    Cleaned,
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Session,
    Writer,
)
from apps.memory_api.memory.aside import search_text
from apps.memory_api.memory.change import bring, change, remove
from apps.memory_api.memory.find import how_of
from apps.memory_api.memory.found import FoundMemory, Hit
from apps.memory_api.memory.queries import get_memory, list_links, list_memories, list_revisions
from apps.memory_api.memory.schemas import (
    LAYER_OF,
    Kind,
    Layer,
    LinkView,
    MemoryPatch,
    MemoryStored,
    MemoryView,
    NewMemory,
    RevisionView,
    SearchAnswer,
    SearchHit,
    SearchQuery,
    Status,
)
from apps.memory_api.memory.scopes import Address, Area, all_playbooks, kind_scope
from apps.memory_api.memory.tables import Memory

router = APIRouter(prefix="/api/v1", tags=["memories"], route_class=SecretlessRoute)

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


def show(memory: Memory | FoundMemory) -> MemoryView:
    names = set(MemoryView.model_fields) - {"metadata"}
    return MemoryView(metadata=memory.metadata_, **{name: getattr(memory, name) for name in names})


def show_stored(memory: Memory, cleaned: bool) -> MemoryStored:
    return MemoryStored(cleaned=cleaned, **show(memory).model_dump())


@router.post("/memories", status_code=201, openapi_extra=example(NEW_MEMORY))
async def bring_memory(
    body: NewMemory, runtime: RuntimeDep, caller: Writer, response: Response, cleaned: Cleaned
) -> MemoryStored:
    """Store a memory of your own. No model is called."""
    project_id = caller.project(body.project_id)
    memory = await bring(runtime, caller.tenant_id, project_id, body, caller.actor)
    response.headers["Location"] = f"/api/v1/memories/{memory.id}"
    return show_stored(memory, cleaned)


@router.get("/memories")
async def list_all(
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    project_id: ProjectQuery,
    kind: Annotated[list[Kind] | None, Query()] = None,
    layer: Annotated[list[Layer] | None, Query()] = None,
    status: Literal["active", "quarantined", "archived"] = "active",
    tag: Annotated[list[str] | None, Query(max_length=64)] = None,
    trace_id: UUID | None = None,
    limit: Limit = 50,
) -> Page[MemoryView]:
    """Memories of a project, newest first. `kind`, `layer`, `tag` may be repeated: any of them."""
    rows = await list_memories(
        session,
        project_id=caller.project(project_id),
        kinds=[k.value for k in kind or ()],
        layers=[x.value for x in layer or ()],
        status=Status(status),
        tags=tag or (),
        trace_id=trace_id,
        cursor=cursor,
        limit=limit,
    )
    return page(rows, limit, show)


@router.get("/memories/{memory_id}")
async def read(memory_id: UUID, session: Session, caller: Reader) -> MemoryView:
    """One memory."""
    return show(await _found(session, memory_id, caller.project_id))


@router.patch("/memories/{memory_id}", openapi_extra=example(PATCH_MEMORY))
async def patch(
    memory_id: UUID, body: MemoryPatch, runtime: RuntimeDep, caller: Writer, cleaned: Cleaned
) -> MemoryStored:
    """Change the fields that are sent. A quarantined or archived memory is kept and not served."""
    await _check_project(runtime, caller, memory_id)
    memory = await change(runtime, caller.tenant_id, memory_id, body, caller.actor)
    return show_stored(memory, cleaned)


@router.delete("/memories/{memory_id}", status_code=204)
async def delete(
    memory_id: UUID,
    runtime: RuntimeDep,
    caller: Writer,
    reason: Annotated[str | None, Query(max_length=2000)] = None,
) -> None:
    """Forget a memory. Its history stays; it is found no more."""
    await _check_project(runtime, caller, memory_id)
    await remove(runtime, caller.tenant_id, memory_id, caller.actor, reason)


@router.get("/memories/{memory_id}/revisions")
async def revisions(memory_id: UUID, session: Session, caller: Reader) -> Page[RevisionView]:
    """How a memory came to say what it says, oldest first; also of one that was forgotten."""
    await _found(session, memory_id, caller.project_id, deleted=True)
    rows = await list_revisions(session, memory_id)
    names = RevisionView.model_fields
    return Page[RevisionView](
        items=[RevisionView(**{name: getattr(row, name) for name in names}) for row in rows]
    )


@router.get("/memories/{memory_id}/links")
async def links(memory_id: UUID, session: Session, caller: Reader) -> Page[LinkView]:
    """What a memory was derived from, what it supports, what supports it."""
    await _found(session, memory_id, caller.project_id)
    rows = await list_links(session, memory_id)
    names = LinkView.model_fields
    return Page[LinkView](
        items=[LinkView(**{name: getattr(row, name) for name in names}) for row in rows]
    )


@router.post("/search", openapi_extra=example(SEARCH))
async def search_memories(body: SearchQuery, runtime: RuntimeDep, caller: Reader) -> SearchAnswer:
    """Hybrid full-text and vector search over any layer and kind of a project.

    An empty `query_text` lists by usefulness. Scores are relative to the best candidate of this
    search; `explain` shows the raw cosine and BM25. A `playbook` that is not there is a 404.
    """
    addresses = _addresses(body, caller.project(body.project_id))
    how = how_of(body, runtime.settings)
    how["head"] = body.playbook is not None
    embedder = await runtime.embedder_of(caller.tenant_id)
    found = await search_text(
        runtime.sessions, embedder, caller.tenant_id, body.query_text, addresses, **how
    )
    if body.playbook is not None and found.head is None:
        raise NotFound("There is no such playbook.")
    return SearchAnswer(results=[_show_hit(hit, body.explain) for hit in found.hits])


def _addresses(body: SearchQuery, project_id: str) -> list[Address | Area]:
    """Which scopes a query looks into: a playbook, or the kinds and layers of the project. Bullets
    are those of all its playbooks.
    """
    if body.playbook is not None:
        return [(project_id, "playbook", body.playbook)]
    layers = set(body.layers)
    kinds = [k for k in body.kinds or list(Kind) if not layers or LAYER_OF[k] in layers]
    found: list[Address | Area] = [kind_scope(project_id, kind) for kind in kinds]
    return [*found, all_playbooks(project_id)] if Kind.BULLET in kinds else found


def _show_hit(hit: Hit, explain: bool) -> SearchHit:
    return SearchHit(
        memory=show(hit.memory),
        playbook=hit.playbook,
        vector_score=hit.vector_score,
        bm25_score=hit.bm25_score,
        combined_score=hit.combined_score,
        explain=hit.explained() if explain else None,
    )


async def _found(
    session: Session, memory_id: UUID, project_id: str | None, *, deleted: bool = False
) -> Memory:
    """The memory, if the caller may see it. A key bound to a project does not learn of others'."""
    memory = await get_memory(session, memory_id, deleted=deleted)
    if memory is None or project_id not in (None, memory.project_id):
        raise NotFound
    return memory


async def _check_project(runtime: RuntimeDep, caller: Writer, memory_id: UUID) -> None:
    async with runtime.sessions.tenant(caller.tenant_id) as session:
        await _found(session, memory_id, caller.project_id)
