"""Collections of documents: create one, add documents, and see how far they are loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.api.deps import Reader, RuntimeDep, Session, Writer
from memory_api.collections.router import (
    create_collection,
    delete_document,
    get_collection,
    list_collections,
    list_documents,
    upload_document,
)
from memory_api.collections.schemas import CreateCollectionRequest
from memory_api.collections.tables import CollectionRow
from memory_api.console.error_texts import TOO_LONG
from memory_api.console.forms import SentForm, validate_body
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.paging import Place, PlaceQuery
from memory_api.console.queries import count_in_project
from memory_api.console.rendering import render_page
from memory_api.console.visit import Visit
from memory_api.core.errors import HanseiError, InvalidRequest

router = APIRouter(prefix="/console/collections", route_class=ConsoleRoute, include_in_schema=False)

PAGE_SIZE = 50
LIVE_STATES = ("queued", "running", "deleting")
MAX_TITLE_LENGTH = 200


@router.get("")
async def show_collections(
    visit: CurrentVisit, session: Session, caller: Reader, place: PlaceQuery
) -> Response:
    return await _list_page(visit, session, place)


async def _list_page(
    visit: Visit,
    session: AsyncSession,
    place: Place,
    form: SentForm | None = None,
    error: HanseiError | None = None,
) -> Response:
    page = await list_collections(session, visit.caller, place.cursor, visit.project, PAGE_SIZE)
    total = await count_in_project(session, CollectionRow, visit.project)
    return render_page(
        visit,
        "collections/list.html",
        error.status if error else 200,
        page=page,
        paging=place.followed_by(page.next_cursor, total, PAGE_SIZE),
        form=form or SentForm({}),
        error=error,
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
        return await _list_page(visit, session, Place(), form, error)
    return RedirectResponse(visit.link("collections", made.name), 303)


@router.get("/{name}")
async def show_collection(
    name: str, visit: CurrentVisit, session: Session, caller: Reader, place: PlaceQuery
) -> Response:
    return await _collection_page(visit, session, name, place)


async def _collection_page(
    visit: Visit,
    session: AsyncSession,
    name: str,
    place: Place,
    form: SentForm | None = None,
    error: HanseiError | None = None,
) -> Response:
    caller, cursor = visit.caller, place.cursor
    collection = await get_collection(name, session, caller, visit.project)
    page = await list_documents(name, session, caller, cursor, visit.project, None, PAGE_SIZE)
    is_part = visit.is_partial and not error
    return render_page(
        visit,
        "collections/live.html" if is_part else "collections/collection.html",
        error.status if error else 200,
        collection=collection,
        page=page,
        live_states=LIVE_STATES,
        paging=place.followed_by(page.next_cursor, collection.document_count, PAGE_SIZE),
        form=form or SentForm({}),
        error=error,
    )


@router.post("/{name}/documents")
async def add_document(
    name: str, visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    """Add a text. Files are added with `hansei collection add` or over HTTP."""
    text, title = form.text("text"), form.text("title")

    async def stream() -> AsyncIterator[bytes]:
        yield text.encode()

    try:
        if not text or not title:
            raise InvalidRequest("Write a title and a text.", field="text" if title else "title")
        if len(title) > MAX_TITLE_LENGTH:
            too_long = TOO_LONG % {"count": MAX_TITLE_LENGTH}
            raise InvalidRequest(f"Title: {too_long}", field="title")
        await upload_document(
            runtime,
            caller.tenant_id,
            (visit.project, name),
            stream(),
            "text/markdown",
            source=title,
            title=title,
        )
    except InvalidRequest as error:
        async with runtime.sessions.for_tenant(caller.tenant_id) as session:
            return await _collection_page(visit, session, name, Place(), form, error)
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
