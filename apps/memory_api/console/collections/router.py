"""Collections of documents: create one, add documents, and see how far they are loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from memory_api.api.deps import CursorQuery, Reader, RuntimeDep, Session, Writer
from memory_api.collections.router import (
    create_collection,
    delete_document,
    get_collection,
    list_collections,
    list_documents,
    upload_document,
)
from memory_api.collections.schemas import CreateCollectionRequest
from memory_api.console.forms import SentForm, validate_body
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.rendering import render_page
from memory_api.core.errors import HanseiError, InvalidRequest

router = APIRouter(prefix="/console/collections", route_class=ConsoleRoute, include_in_schema=False)

PAGE_SIZE = 50
LIVE_STATES = ("queued", "running", "deleting")


@router.get("")
async def show_collections(
    visit: CurrentVisit, session: Session, caller: Reader, cursor: CursorQuery
) -> Response:
    page = await list_collections(session, caller, cursor, visit.project, PAGE_SIZE)
    return render_page(
        visit,
        "collections/list.html",
        page=page,
        is_first=cursor is None,
        form=SentForm({}),
        error=None,
    )


@router.post("")
async def add_collection(
    visit: CurrentVisit, session: Session, caller: Writer, form: Form
) -> Response:
    try:
        values = {
            "name": form.text("name"),
            "description": form.text("description"),
            "project_id": visit.project,
        }
        made = await create_collection(
            validate_body(CreateCollectionRequest, values), session, caller
        )
    except HanseiError as error:
        page = await list_collections(session, caller, None, visit.project, PAGE_SIZE)
        return render_page(
            visit,
            "collections/list.html",
            error.status,
            page=page,
            is_first=True,
            form=form,
            error=error,
        )
    return RedirectResponse(visit.link("collections", made.name), 303)


@router.get("/{name}")
async def show_collection(
    name: str, visit: CurrentVisit, session: Session, caller: Reader, cursor: CursorQuery
) -> Response:
    return render_page(
        visit,
        "collections/live.html" if visit.is_partial else "collections/collection.html",
        collection=await get_collection(name, session, caller, visit.project),
        page=await list_documents(name, session, caller, cursor, visit.project, None, PAGE_SIZE),
        live_states=LIVE_STATES,
        is_first=cursor is None,
        form=SentForm({}),
        error=None,
    )


@router.post("/{name}/documents")
async def add_document(
    name: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    """Add a text. Files are added with `hansei collection add` or over HTTP."""
    text, title = form.text("text"), form.text("title")[:200]

    async def stream() -> AsyncIterator[bytes]:
        yield text.encode()

    place = visit.project, name
    try:
        if not text or not title:
            raise InvalidRequest("Write a title and a text.", field="title" if text else "text")
        await upload_document(
            runtime,
            caller.tenant_id,
            place,
            stream(),
            "text/markdown",
            source=title,
            title=title,
        )
    except InvalidRequest as error:
        async with runtime.sessions.for_tenant(caller.tenant_id) as session:
            return render_page(
                visit,
                "collections/collection.html",
                error.status,
                collection=await get_collection(name, session, caller, visit.project),
                page=await list_documents(
                    name, session, caller, None, visit.project, None, PAGE_SIZE
                ),
                live_states=LIVE_STATES,
                is_first=True,
                form=form,
                error=error,
            )
    return RedirectResponse(visit.link("collections", name), 303)


@router.post("/{name}/documents/{document_id}/delete")
async def remove_document(
    name: str,
    document_id: UUID,
    visit: CurrentVisit,
    runtime: RuntimeDep,
    session: Session,
    caller: Writer,
) -> Response:
    await delete_document(name, document_id, runtime, session, caller, visit.project)
    return RedirectResponse(visit.link("collections", name), 303)
