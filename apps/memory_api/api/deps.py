"""Dependencies of routes: the runtime, the state of the process, the caller, and a session bound to
the caller's tenant.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from fastapi.security import HTTPBearer
from fastapi.security.base import SecurityBase
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.api.idempotency import IdempotencyReservation
from memory_api.auth.fairness import BodyPace, WriteSlots
from memory_api.auth.identity import Identity, KeyCache, KeyScope, parse_key
from memory_api.auth.queries import get_valid_key, mark_key_used
from memory_api.auth.rate_limits import OpenRequests, RateLimited, RateLimits, RefusalDelay
from memory_api.core.errors import Forbidden, InvalidRequest, Unauthorized
from memory_api.core.log_context import bind_log_context
from memory_api.core.pagination import Cursor
from memory_api.core.settings import Settings
from memory_api.runtime import Runtime

OPEN_REQUEST = "hansei.open_request"
"""The tenant of a request that `OpenRequests` counts, in its ASGI scope."""
PEER = "hansei.peer"
"""The address at the other end of the connection, in the ASGI scope of a request."""
bearer = HTTPBearer(auto_error=False, description="An API key: `hsk_…`")


# FastAPI calls a dependency that is not `async` in a thread, which takes longer than all of these.


async def was_sanitized(request: Request) -> bool:
    """Whether characters or secrets in the body were replaced (`core.json_input`)."""
    return bool(getattr(request.state, "sanitized", False))


Sanitized = Annotated[bool, Depends(was_sanitized)]

PreferHeader = Annotated[
    str,
    Header(
        alias="Prefer",
        description="`respond-async`: answer 202 immediately; a worker executes the run. `wait=N`: "
        "answer within N seconds. Default: HANSEI_REQUEST_TIMEOUT.",
    ),
]

WaitHeader = Annotated[
    str,
    Header(
        alias="Prefer",
        description="`wait=N`: answer within N seconds. Default: HANSEI_REQUEST_TIMEOUT.",
    ),
]


async def reservation_of(request: Request) -> IdempotencyReservation | None:
    """The reserved `Idempotency-Key` of this request, or None. Only routes that open their own
    transactions need it.
    """
    return getattr(request.state, "reserved", None)


Reservation = Annotated[IdempotencyReservation | None, Depends(reservation_of)]


def runtime_of(request: Request) -> Runtime:
    return request.app.state.runtime


async def get_runtime(request: Request) -> Runtime:
    return runtime_of(request)


RuntimeDep = Annotated[Runtime, Depends(get_runtime)]


@dataclass
class WriteCheck:
    """The last write of the readiness check that succeeded."""

    at: float = -math.inf
    """Monotonic seconds."""
    result: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class ApiState:
    """What one API process holds between requests. Workers have none of it."""

    rate_limits: RateLimits
    body_pace: BodyPace
    open_requests: OpenRequests
    write_slots: WriteSlots = field(default_factory=WriteSlots)
    refusal_delay: RefusalDelay = field(default_factory=RefusalDelay)
    key_cache: KeyCache = field(default_factory=KeyCache)
    write_check: WriteCheck = field(default_factory=WriteCheck)

    @classmethod
    def of(cls, settings: Settings) -> ApiState:
        return cls(
            RateLimits(settings),
            BodyPace(settings.rate_limit_body_bytes),
            OpenRequests(settings.max_connections),
        )


def api_state_of(request: Request) -> ApiState:
    return request.app.state.api


async def get_api_state(request: Request) -> ApiState:
    return api_state_of(request)


ApiStateDep = Annotated[ApiState, Depends(get_api_state)]


async def authenticate(request: Request) -> Identity:
    """The caller. Checked once a request, and in the database at most every five seconds
    (`KeyCache`). Raises `Unauthorized` with the same text whatever is wrong with the key. A refusal
    is delayed while there are many.
    """
    known: Identity | None = getattr(request.state, "identity", None)
    if known is not None:
        return known
    credentials = await bearer(request)
    return await authenticate_key(request, credentials.credentials if credentials else "")


async def authenticate_key(request: Request, key: str) -> Identity:
    """`authenticate` with a key that is not in the header."""
    state = api_state_of(request)
    try:
        return await _identify(request, state, key)
    except (Unauthorized, RateLimited):
        await state.refusal_delay.wait()
        raise


async def _identify(request: Request, state: ApiState, key_text: str) -> Identity:
    claim = parse_key(key_text)
    tenant_id, secret_hash = claim
    known = state.key_cache.get(claim)
    if known is not None:
        return _remember_caller(request, state, known)
    is_unknown = not state.key_cache.has_worked(claim)
    address = request.client.host if request.client else ""
    peer = request.scope.get(PEER, address)
    if is_unknown:  # counted before the database is asked, so that guesses cost it little
        state.rate_limits.count_unknown_key(address, peer)
    async with runtime_of(request).sessions.for_tenant(tenant_id) as session:
        key = await get_valid_key(session, secret_hash)
        if key is None:
            state.key_cache.discard(claim)
            raise Unauthorized
        await mark_key_used(session, key)
    if is_unknown:
        state.rate_limits.release_key(address, peer)
    identity = Identity(
        tenant_id=tenant_id,
        key_id=key.id,
        scopes=frozenset(KeyScope(scope) for scope in key.scopes),
        project_id=key.project_id,
    )
    state.key_cache.add(claim, identity, key.expires_at)
    return _remember_caller(request, state, identity)


def _remember_caller(request: Request, state: ApiState, caller: Identity) -> Identity:
    bind_log_context(tenant_id=caller.tenant_id, key_id=caller.key_id)
    state.write_slots.note_request(caller.tenant_id)
    state.open_requests.add(caller.tenant_id)
    request.scope[OPEN_REQUEST] = caller.tenant_id  # until the response was sent
    request.state.rate_limit = state.rate_limits.count_request(caller)
    request.state.identity = caller
    return caller


class ScopeCheck(SecurityBase):
    """A dependency that returns the caller, or raises `Forbidden` without any of these key scopes.

    It documents the API key itself and depends on nothing: FastAPI needs 20 to 30 µs for each
    dependency of a request.
    """

    model = bearer.model
    scheme_name = bearer.scheme_name

    def __init__(self, scope: KeyScope, *alternatives: KeyScope) -> None:
        self.scope = scope
        self.alternatives = alternatives

    async def __call__(self, request: Request) -> Identity:
        caller = await authenticate(request)
        if not any(map(caller.has_scope, self.alternatives)):
            caller.require_scope(self.scope)
        return caller


Reader = Annotated[Identity, Depends(ScopeCheck(KeyScope.READ))]
Writer = Annotated[Identity, Depends(ScopeCheck(KeyScope.WRITE))]
Admin = Annotated[Identity, Depends(ScopeCheck(KeyScope.ADMIN))]
Operator = Annotated[Identity, Depends(ScopeCheck(KeyScope.OPERATOR))]


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    """One transaction bound to the caller's tenant, committed before the response is sent.

    The route class stores the response of an idempotent request in `request.state.session`, and
    commits by closing `request.state.transaction`.
    """
    caller = await authenticate(request)
    async with AsyncExitStack() as transaction:
        session = await transaction.enter_async_context(
            runtime_of(request).sessions.for_tenant(caller.tenant_id)
        )
        request.state.session, request.state.transaction = session, transaction
        yield session


Session = Annotated[AsyncSession, Depends(open_session, scope="function")]

Limit = Annotated[int, Query(ge=1, le=200, description="Maximum number of items of the page.")]


async def read_project(
    project_id: Annotated[
        str | None,
        Query(
            max_length=128, description="Project. Default: the project of the key, else `default`."
        ),
    ] = None,
    project: Annotated[str | None, Query(max_length=128, include_in_schema=False)] = None,
) -> str | None:
    """The project in the query. `project` is accepted for `project_id`, as in bodies."""
    return project_id if project_id is not None else project


ProjectQuery = Annotated[str | None, Depends(read_project)]


async def read_cursor(
    cursor: Annotated[
        str | None, Query(description="`next_cursor` of the previous page. Omit for the first.")
    ] = None,
) -> Cursor | None:
    return None if cursor is None else Cursor.decode(cursor)


CursorQuery = Annotated[Cursor | None, Depends(read_cursor)]


def project_filter(caller: Identity, project_id: str | None) -> str | None:
    """One project, or None for all projects of the tenant. Raises `Forbidden` if the key is bound
    to another project.
    """
    return caller.resolve_project(project_id) if caller.project_id or project_id else None


def require_whole_tenant(caller: Identity) -> None:
    """Raises `Forbidden` if the key is bound to one project."""
    if caller.project_id is not None:
        raise Forbidden(
            f"This key is bound to project '{caller.project_id}'. "
            "This request needs a key of the whole tenant."
        )


DEFAULT_PERIOD = timedelta(days=30)


def _first_of_default_period(end: datetime) -> date:
    return end.date() - DEFAULT_PERIOD


def default_start(
    end: datetime, first_day: Callable[[datetime], date] = _first_of_default_period
) -> datetime:
    """The start of a period if nobody sets one: midnight (UTC) of its first day. Raises
    `InvalidRequest`.
    """
    try:
        return datetime.combine(first_day(end), time(), UTC)
    except OverflowError:
        raise InvalidRequest("`until` is too early.", field="until") from None
