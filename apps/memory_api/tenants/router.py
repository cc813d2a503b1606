"""Tenants, API keys and the audit log over HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from memory_api.api.deps import (
    Admin,
    ApiStateDep,
    CursorQuery,
    Limit,
    Operator,
    Reader,
    RuntimeDep,
    Session,
    project_filter,
    require_whole_tenant,
)
from memory_api.api.problems import Responses, problems
from memory_api.api.route import ApiRoute
from memory_api.auth import queries
from memory_api.auth.identity import Identity, KeyScope
from memory_api.auth.queries import (
    create_key,
    get_api_key,
    get_tenant,
    list_keys,
    revoke_key,
)
from memory_api.auth.tables import ApiKeyRow
from memory_api.core.errors import Forbidden, NotFound
from memory_api.core.ids import to_tenant_id
from memory_api.core.pagination import Cursor, parse_cursor_id, to_page
from memory_api.core.schemas import body_example
from memory_api.tenants.audit_log import record_audit_event, record_key_event
from memory_api.tenants.export import export_rows
from memory_api.tenants.queries import list_audit_events
from memory_api.tenants.schemas import (
    ApiKey,
    ApiKeyPage,
    AuditEventPage,
    CreateApiKeyRequest,
    CreateApiKeyResponse,
    CreateTenantRequest,
    CreateTenantResponse,
    Tenant,
    TenantPage,
)

router = APIRouter(prefix="/api/v1", route_class=ApiRoute)


def key_response(key: ApiKeyRow) -> ApiKey:
    return ApiKey.model_validate(key, from_attributes=True)


def _may_manage(caller: Identity, key: ApiKeyRow) -> bool:
    """An admin key bound to a project manages only keys of that project."""
    return caller.project_id in (None, key.project_id)


EXISTING_TENANT: Responses = {
    200: {"model": CreateTenantResponse, "description": "The tenant already exists; `key` is null."}
}


@router.post(
    "/tenants",
    tags=["tenants"],
    status_code=201,
    summary="Create a tenant",
    responses=EXISTING_TENANT | problems(409),
    openapi_extra=body_example({"name": "acme"}),
)
async def create_tenant(
    body: CreateTenantRequest, runtime: RuntimeDep, caller: Operator, response: Response
) -> CreateTenantResponse:
    """Creates a tenant and its first admin key.

    Needs an operator key, which `hansei key create --scope operator` makes. The key of the new
    tenant is in this response only. The name of an erased tenant cannot be used again.
    """
    tenant_id = to_tenant_id(body.name)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        is_new = await queries.create_tenant(session, body.name)
        key = None
        if is_new:
            row, key = await create_key(session, scopes=[KeyScope.ADMIN], name="first")
            await record_audit_event(session, "tenant.created", f"tenant:{body.name}", {})
            await record_key_event(session, "key.created", row)
        tenant = await get_tenant(session)
        assert tenant is not None
        response.status_code = 201 if is_new else 200
        created = CreateTenantResponse.model_validate(tenant, from_attributes=True)
        return created.model_copy(update={"key": key.text if key else None})


@router.post(
    "/tenants/{tenant}/suspend",
    tags=["tenants"],
    summary="Suspend a tenant",
    responses=problems(404),
)
async def suspend_tenant(tenant: str, runtime: RuntimeDep, caller: Operator) -> Tenant:
    """Stops a tenant: its keys answer 401 within five seconds, its runs wait. Its data stays.

    `tenant` is the name or ID of the tenant. Needs an operator key.
    """
    return await _set_status(runtime, tenant, "suspended")


@router.post(
    "/tenants/{tenant}/resume",
    tags=["tenants"],
    summary="Resume a suspended tenant",
    responses=problems(404),
)
async def resume_tenant(tenant: str, runtime: RuntimeDep, caller: Operator) -> Tenant:
    """Lets a suspended tenant work again. Its waiting runs start within a minute."""
    return await _set_status(runtime, tenant, "active")


async def _set_status(runtime: RuntimeDep, name: str, status: str) -> Tenant:
    async with runtime.sessions.for_tenant(to_tenant_id(name)) as session:
        row = await queries.set_tenant_status(session, status)
        if row is None:
            raise NotFound("Tenant not found.")
        action = "tenant.suspended" if status == "suspended" else "tenant.resumed"
        await record_audit_event(session, action, f"tenant:{row.slug}", {})
        return Tenant.from_row(row)


@router.get(
    "/export",
    tags=["tenants"],
    summary="Export everything of the tenant",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}, "description": "One row per line."}},
)
async def export_tenant(runtime: RuntimeDep, caller: Admin) -> StreamingResponse:
    """Streams all rows of the tenant as NDJSON, table by table: `{"table": …, "row": {…}}`.

    The last line is `{"table": null, "counts": {…}}`; without it, the export is not complete.
    Vectors, the search index and secrets of API keys are left out. Rows that are written during the
    export may be missing.
    """
    require_whole_tenant(caller)
    lines = export_rows(runtime.sessions, caller.tenant_id)
    return StreamingResponse(lines, media_type="application/x-ndjson")


@router.get("/tenants", tags=["tenants"], summary="List tenants")
async def list_tenants(session: Session, caller: Reader) -> TenantPage:
    """Lists the tenant of the API key."""
    row = await get_tenant(session)
    return TenantPage(items=[Tenant.from_row(row)] if row else [])


@router.post(
    "/keys",
    tags=["keys"],
    status_code=201,
    summary="Create an API key",
    openapi_extra=body_example({"name": "ci", "scopes": ["write"]}),
)
async def create_api_key(
    body: CreateApiKeyRequest, session: Session, caller: Admin
) -> CreateApiKeyResponse:
    """Creates an API key of the tenant. The text of the key is in this response only."""
    if KeyScope.OPERATOR in body.scopes:
        raise Forbidden(
            "The HTTP API cannot create operator keys. Run `hansei key create --scope operator`.",
            field="scopes",
        )
    row, key = await create_key(
        session,
        scopes=body.scopes,
        name=body.name or "",
        project_id=project_filter(caller, body.project_id),
        expires_at=body.expires_at,
    )
    await record_key_event(session, "key.created", row)
    return CreateApiKeyResponse(key=key.text, **key_response(row).model_dump())


@router.get("/keys", tags=["keys"], summary="List API keys")
async def list_api_keys(
    session: Session, caller: Admin, cursor: CursorQuery, limit: Limit = 50
) -> ApiKeyPage:
    """Lists the API keys of the tenant without their secrets, the oldest first.

    An admin key bound to a project sees the keys of that project.
    """
    after = parse_cursor_id(cursor.text("api_keys")) if cursor else None
    keys = await list_keys(session, project_id=caller.project_id, after=after, limit=limit)
    return to_page(ApiKeyPage, keys, limit, key_response, _key_cursor)


def _key_cursor(key: ApiKeyRow) -> Cursor:
    return Cursor("api_keys", (key.id.hex,))


@router.delete(
    "/keys/{key_id}",
    tags=["keys"],
    status_code=204,
    summary="Revoke an API key",
    responses=problems(404),
)
async def revoke_api_key(
    key_id: UUID, runtime: RuntimeDep, state: ApiStateDep, caller: Admin
) -> None:
    """Revokes an API key, immediately in this process and within five seconds in others."""
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        key = await get_api_key(session, key_id)
        if key is None or not _may_manage(caller, key):
            raise NotFound("API key not found.")
        await revoke_key(session, key_id)
        await record_key_event(session, "key.revoked", key)
    state.key_cache.remove(key_id)


@router.get("/audit-log", tags=["tenants"], summary="List administrative acts")
async def list_audit_log(
    session: Session,
    caller: Admin,
    cursor: CursorQuery,
    action: Annotated[
        str | None, Query(max_length=64, description="Only this action, such as `key.created`.")
    ] = None,
    limit: Limit = 50,
) -> AuditEventPage:
    """Lists administrative acts, newest first: who created or revoked a key, set budgets, decided
    on a proposal or erased data.

    Entries cannot be changed or deleted through the service. Answers 403 for a key bound to one
    project.
    """
    require_whole_tenant(caller)
    rows = await list_audit_events(session, action=action, cursor=cursor, limit=limit)
    return to_page(AuditEventPage, rows, limit)
