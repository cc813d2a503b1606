"""Tenants, keys and runs over HTTP."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response

from apps.memory_api.account.schemas import (
    KeyMade,
    KeyView,
    NewApiKey,
    NewTenant,
    RunView,
    TenantMade,
    TenantView,
)
from apps.memory_api.api_route import ApiRoute
from apps.memory_api.core.cursor import page
from apps.memory_api.core.errors import Forbidden, Invalid, NotFound
from apps.memory_api.core.openapi import example
from apps.memory_api.core.schemas import Page
from apps.memory_api.deps import (
    Admin,
    CursorQuery,
    Limit,
    Operator,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Session,
    Writer,
)
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.chain import NEXT, next_of
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.queries import get_run, list_runs
from apps.memory_api.jobs.tables import Run
from apps.memory_api.tenants.identity import Access, Identity, tenant_id_of
from apps.memory_api.tenants.queries import (
    create_key,
    create_tenant,
    get_tenant,
    list_keys,
    revoke_key,
)
from apps.memory_api.tenants.tables import ApiKey

router = APIRouter(prefix="/api/v1", tags=["account"], route_class=ApiRoute)

STATES = ("queued", "running", "waiting", "done", "failed", "dead")


def show_run(run: Run) -> RunView:
    fields = {name: getattr(run, name) for name in RunView.model_fields if name != NEXT}
    return RunView(**fields, next_run_id=next_of(run))


def show_key(key: ApiKey) -> KeyView:
    return KeyView(**{name: getattr(key, name) for name in KeyView.model_fields})


def _bound(caller: Identity, asked: str | None) -> str | None:
    """One project, or None for all of the tenant. Raises `Forbidden` for another than the key's."""
    return caller.project(asked) if caller.project_id or asked else None


def _may_manage(caller: Identity, key: ApiKey) -> bool:
    """The administrator of a project manages that project's keys."""
    return caller.project_id in (None, key.project_id)


KNOWN: dict[int | str, dict[str, Any]] = {
    200: {"model": TenantMade, "description": "The tenant was here already."}
}


@router.post("/tenants", status_code=201, responses=KNOWN, openapi_extra=example({"name": "acme"}))
async def make_tenant(
    body: NewTenant, runtime: RuntimeDep, caller: Operator, response: Response
) -> TenantMade:
    """Create a tenant and its administrator's key. Needs an operator key: the CLI makes those."""
    tenant_id = tenant_id_of(body.name)
    async with runtime.sessions.tenant(tenant_id) as session:
        made = await create_tenant(session, body.name)
        text = None
        if made:
            _, key = await create_key(session, scopes=[Access.ADMIN], name="first")
            text = key.text
        tenant = await get_tenant(session)
        assert tenant is not None
        response.status_code = 201 if made else 200
        names = TenantView.model_fields
        return TenantMade(key=text, **{name: getattr(tenant, name) for name in names})


@router.get("/tenants")
async def list_tenants(session: Session, caller: Reader) -> Page[TenantView]:
    """The tenants this key belongs to: its own."""
    tenant = await get_tenant(session)
    found = [tenant] if tenant else []
    names = TenantView.model_fields
    return Page[TenantView](
        items=[TenantView(**{name: getattr(row, name) for name in names}) for row in found]
    )


@router.post("/keys", status_code=201, openapi_extra=example({"name": "ci", "scopes": ["write"]}))
async def make_key(body: NewApiKey, session: Session, caller: Admin) -> KeyMade:
    """Make a key of your tenant. Its text is shown this once."""
    if Access.OPERATOR in body.scopes:
        raise Forbidden("Only `hansei key create` makes operator keys.", field="scopes")
    row, key = await create_key(
        session,
        scopes=body.scopes,
        name=body.name or "",
        project_id=_bound(caller, body.project_id),
        expires_at=body.expires_at,
    )
    return KeyMade(key=key.text, **show_key(row).model_dump())


@router.get("/keys")
async def all_keys(session: Session, caller: Admin) -> Page[KeyView]:
    """The keys of your tenant, or of your key's project, without their secrets."""
    keys = await list_keys(session)
    return Page[KeyView](items=[show_key(key) for key in keys if _may_manage(caller, key)])


@router.delete("/keys/{key_id}", status_code=204)
async def revoke(key_id: UUID, runtime: RuntimeDep, caller: Admin) -> None:
    """Revoke a key: at once here, within five seconds in other processes."""
    async with runtime.sessions.tenant(caller.tenant_id) as session:
        known = {key.id for key in await list_keys(session) if _may_manage(caller, key)}
        if key_id not in known:
            raise NotFound
        await revoke_key(session, key_id)
    runtime.keys.forget(key_id)


@router.get("/runs")
async def all_runs(
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    project_id: ProjectQuery,
    state: Annotated[str | None, Query(description="One or more, with commas.")] = None,
    kind: Annotated[str | None, Query(max_length=64)] = None,
    trace_id: UUID | None = None,
    parent_id: Annotated[UUID | None, Query(description="The first run of a chain.")] = None,
    limit: Limit = 50,
) -> Page[RunView]:
    """All work, newest first; `state=dead` are the dead letters with their cause. With `parent_id`:
    the steps that followed a run.
    """
    states = tuple(part for part in (state or "").split(",") if part)
    if not set(states) <= set(STATES):
        raise Invalid(f"Any of {', '.join(STATES)}.", field="state")
    parent = await get_run(session, parent_id) if parent_id else None
    if parent_id and parent is None:
        return Page[RunView](items=[])
    rows = await list_runs(
        session,
        project_id=_bound(caller, project_id),
        states=states,
        kind=kind,
        trace_id=trace_id,
        parent=parent,
        cursor=cursor,
        limit=limit,
    )
    return page(rows, limit, show_run)


@router.get("/runs/{run_id}")
async def read_run(run_id: UUID, session: Session, caller: Reader) -> RunView:
    """One piece of work."""
    run = await get_run(session, run_id)
    if run is None or caller.project_id not in (None, run.project_id):
        raise NotFound
    return show_run(run)


@router.post("/runs/{run_id}/retry", status_code=202)
async def retry_run(run_id: UUID, runtime: RuntimeDep, session: Session, caller: Writer) -> RunView:
    """Queue a dead or failed run again, from its first attempt. Of a chain, only this step is done
    again; those before it stand, and those after it follow.
    """
    run = await get_run(session, run_id)
    if run is None or caller.project_id not in (None, run.project_id):
        raise NotFound
    run = await runs.retry(session, run_id)
    assert run is not None
    await session.flush()
    await runtime.queue.enqueue(session, [Ticket(caller.tenant_id, run_id)])
    return show_run(run)
