"""Erasures over HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Response

from memory_api.api.deps import (
    Admin,
    CursorQuery,
    Limit,
    RuntimeDep,
    ScopeCheck,
    Session,
    require_whole_tenant,
)
from memory_api.api.problems import problems
from memory_api.api.route import ApiRoute
from memory_api.auth.identity import Identity, KeyScope
from memory_api.core.errors import NotFound
from memory_api.core.ids import to_tenant_id
from memory_api.core.pagination import to_page
from memory_api.core.schemas import body_example
from memory_api.erasures import queries
from memory_api.erasures.erase import create_erasure as create
from memory_api.erasures.schemas import (
    CreateErasureRequest,
    Erasure,
    ErasurePage,
    ErasureTarget,
)

router = APIRouter(prefix="/api/v1/erasures", tags=["maintenance"], route_class=ApiRoute)
EXAMPLE = {
    "target_kind": "person",
    "target_id": "customer-4711",
    "reason": "Requested by the customer.",
}


Eraser = Annotated[Identity, Depends(ScopeCheck(KeyScope.ADMIN, KeyScope.OPERATOR))]


@router.post(
    "",
    status_code=202,
    summary="Erase a memory, a trace, a person or a tenant",
    responses=problems(404),
    openapi_extra=body_example(EXAMPLE),
)
async def create_erasure(
    body: CreateErasureRequest, runtime: RuntimeDep, caller: Eraser, response: Response
) -> Erasure:
    """Removes the content for good, in a run: also from history, versions, stored results and
    search. IDs, times, costs and the names of tags stay (except those of an erased tenant): put
    nothing about a person into a tag. Backups of the database are not changed.

    A trace is erased with all memories that were learned from it, and a bullet with its last
    source. Only an operator key erases a tenant.
    """
    require_whole_tenant(caller)
    tenant_id = caller.tenant_id
    is_tenant = body.target_kind is ErasureTarget.TENANT
    caller.require_scope(KeyScope.OPERATOR if is_tenant else KeyScope.ADMIN)
    if is_tenant:
        tenant_id = to_tenant_id(body.target_id)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        await queries.require_target(session, body)
        row = await create(runtime, session, body)
    response.headers["Location"] = f"/api/v1/erasures/{row.id}"
    return Erasure.from_row(row)


@router.get("", summary="List erasures")
async def list_erasures(
    session: Session, caller: Admin, cursor: CursorQuery, limit: Limit = 50
) -> ErasurePage:
    """Lists the erasures of the tenant, newest first."""
    require_whole_tenant(caller)
    rows = await queries.list_erasures(session, cursor=cursor, limit=limit)
    return to_page(ErasurePage, rows, limit)


@router.get("/{erasure_id}", summary="Get an erasure", responses=problems(404))
async def get_erasure(erasure_id: UUID, session: Session, caller: Admin) -> Erasure:
    """Returns an erasure with what it erased."""
    require_whole_tenant(caller)
    row = await queries.get_erasure(session, erasure_id)
    if row is None:
        raise NotFound("Erasure not found.")
    return Erasure.from_row(row)
