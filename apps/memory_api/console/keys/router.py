"""API keys: list, create (the key is shown once), revoke."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.api.deps import Admin, ApiStateDep, RuntimeDep, Session
from memory_api.auth.tables import ApiKeyRow
from memory_api.console.forms import validate_body
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.paging import Place, PlaceQuery
from memory_api.console.queries import count_in_project
from memory_api.console.rendering import render_page
from memory_api.console.visit import Visit
from memory_api.core.errors import InvalidRequest
from memory_api.tenants.queries import list_projects
from memory_api.tenants.router import create_api_key, list_api_keys, revoke_api_key
from memory_api.tenants.schemas import CreateApiKeyRequest, CreateApiKeyResponse

router = APIRouter(prefix="/console/keys", route_class=ConsoleRoute, include_in_schema=False)

PAGE_SIZE = 50


@router.get("")
async def show_keys(
    visit: CurrentVisit,
    session: Session,
    caller: Admin,
    place: PlaceQuery,
    done: str = "",
) -> Response:
    return await _keys_page(visit, session, place, done=done)


async def _keys_page(
    visit: Visit,
    session: AsyncSession,
    place: Place,
    *,
    created: CreateApiKeyResponse | None = None,
    done: str = "",
) -> Response:
    page = await list_api_keys(session, visit.caller, place.cursor, PAGE_SIZE)
    total = await count_in_project(session, ApiKeyRow, visit.own_project)
    return render_page(
        visit,
        "keys/list.html",
        status=201 if created else 200,
        page=page,
        paging=place.followed_by(page.next_cursor, total, PAGE_SIZE),
        created=created,
        done=done,
    )


@router.post("")
async def create_key(visit: CurrentVisit, session: Session, caller: Admin, form: Form) -> Response:
    """The answer is the page itself, so that the key is in no address and no cookie."""
    project = form.text("project")
    if project and not form.is_set("is_new") and project not in await list_projects(session):
        raise InvalidRequest(
            f"Project '{project}' has no trace. Check its name, or check “The project is new”.",
            field="project",
        )
    values = {
        "name": form.text("name") or None,
        "scopes": [form.text("scope")],
        "project_id": project or caller.project_id,
    }
    body = validate_body(CreateApiKeyRequest, values)
    created = await create_api_key(body, session, caller)
    await session.flush()
    return await _keys_page(visit, session, Place(), created=created)


@router.post("/{key_id}/revoke")
async def revoke_key(
    key_id: UUID, visit: CurrentVisit, runtime: RuntimeDep, state: ApiStateDep, caller: Admin
) -> Response:
    await revoke_api_key(key_id, runtime, state, caller)
    return RedirectResponse(visit.link("keys", done="revoked"), 303)
