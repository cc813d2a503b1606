"""What routes depend on: the runtime, the caller, and a session bound to the caller's tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.cursor import Cursor
from apps.memory_api.core.errors import Unauthorized
from apps.memory_api.jobs.idempotency import Reserved
from apps.memory_api.runtime import Runtime
from apps.memory_api.tenants.identity import Access, Identity, read_key
from apps.memory_api.tenants.queries import find_live_key, touch_key

bearer = HTTPBearer(auto_error=False, description="An API key: `hsk_…`")


def was_cleaned(request: Request) -> bool:
    """Whether the body held what cannot be stored (`core.body`)."""
    return bool(getattr(request.state, "cleaned", False))


Cleaned = Annotated[bool, Depends(was_cleaned)]


def reserved_of(request: Request) -> Reserved | None:
    """The Idempotency-Key under which this request goes ahead, if it has one. Only routes with
    transactions of their own need it.
    """
    return getattr(request.state, "reserved", None)


ReservedDep = Annotated[Reserved | None, Depends(reserved_of)]


def runtime_of(request: Request) -> Runtime:
    return request.app.state.runtime


RuntimeDep = Annotated[Runtime, Depends(runtime_of)]


async def identify(
    request: Request,
    runtime: RuntimeDep,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Identity:
    """The caller, asked once a request, and of the database at most every few seconds
    (`tenants.known`). Raises `Unauthorized`, in the same words whatever is wrong with the key."""
    known: Identity | None = getattr(request.state, "identity", None)
    if known is not None:
        return known
    if credentials is None:
        raise Unauthorized
    claim = read_key(credentials.credentials)
    tenant_id, secret_hash = claim
    request.state.identity = runtime.keys.find(claim)
    if request.state.identity is not None:
        return request.state.identity
    async with runtime.sessions.tenant(tenant_id) as session:
        key = await find_live_key(session, secret_hash)
        if key is None:
            raise Unauthorized
        await touch_key(session, key)
    identity = Identity(
        tenant_id=tenant_id,
        key_id=key.id,
        scopes=frozenset(Access(scope) for scope in key.scopes),
        project_id=key.project_id,
    )
    runtime.keys.remember(claim, identity, key.expires_at)
    request.state.identity = identity
    return identity


def needs(access: Access) -> Callable[[Identity], Awaitable[Identity]]:
    """A dependency: the caller, who must have this scope."""

    async def check(identity: Annotated[Identity, Depends(identify)]) -> Identity:
        identity.require(access)
        return identity

    return check


Reader = Annotated[Identity, Depends(needs(Access.READ))]
Writer = Annotated[Identity, Depends(needs(Access.WRITE))]
Admin = Annotated[Identity, Depends(needs(Access.ADMIN))]
Operator = Annotated[Identity, Depends(needs(Access.OPERATOR))]


async def open_session(
    request: Request, runtime: RuntimeDep, identity: Annotated[Identity, Depends(identify)]
) -> AsyncIterator[AsyncSession]:
    """One transaction bound to the caller's tenant; committed before the answer is sent. The route
    class keeps an answer in it (`request.state.session`).
    """
    async with runtime.sessions.tenant(identity.tenant_id) as session:
        request.state.session = session
        yield session


Session = Annotated[AsyncSession, Depends(open_session, scope="function")]

Limit = Annotated[int, Query(ge=1, le=200, description="Items on a page.")]


def read_project(
    project_id: Annotated[
        str | None, Query(max_length=128, description="Default: the key's project.")
    ] = None,
    project: Annotated[str | None, Query(max_length=128, include_in_schema=False)] = None,
) -> str | None:
    """`project` is accepted for `project_id`, as in bodies."""
    return project_id if project_id is not None else project


ProjectQuery = Annotated[str | None, Depends(read_project)]


def read_cursor(
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before.")] = None,
) -> Cursor | None:
    return Cursor.decode(cursor)


CursorQuery = Annotated[Cursor | None, Depends(read_cursor)]
