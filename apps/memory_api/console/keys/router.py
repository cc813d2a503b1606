"""API keys: list, create (the key is shown once), revoke."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from memory_api.api.deps import Admin, ApiStateDep, CursorQuery, RuntimeDep, Session
from memory_api.console.forms import validate_body
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.rendering import render_page
from memory_api.core.errors import InvalidRequest
from memory_api.maintenance.retention.queries import list_projects
from memory_api.tenants.router import create_api_key, list_api_keys, revoke_api_key
from memory_api.tenants.schemas import CreateApiKeyRequest

router = APIRouter(prefix="/console/keys", route_class=ConsoleRoute, include_in_schema=False)


@router.get("")
async def show_keys(
    visit: CurrentVisit,
    session: Session,
    caller: Admin,
    cursor: CursorQuery,
    done: str = "",
) -> Response:
    page = await list_api_keys(session, caller, cursor)
    is_first = cursor is None
    return render_page(
        visit, "keys/list.html", page=page, is_first=is_first, created=None, done=done
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
    page = await list_api_keys(session, caller, None)
    return render_page(
        visit, "keys/list.html", status=201, page=page, is_first=True, created=created, done=""
    )


@router.post("/{key_id}/revoke")
async def revoke_key(
    key_id: UUID, visit: CurrentVisit, runtime: RuntimeDep, state: ApiStateDep, caller: Admin
) -> Response:
    await revoke_api_key(key_id, runtime, state, caller)
    return RedirectResponse(visit.link("keys", done="revoked"), 303)
