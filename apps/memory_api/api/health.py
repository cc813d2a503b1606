"""GET /health and GET /health/ready.

Strangers learn only whether the service is ready. The state of each part is for clients on the
loopback address and for API keys with the scope admin or operator.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from sqlalchemy import text

from memory_api.api.access import is_loopback
from memory_api.api.deps import WriteCheck, api_state_of, authenticate, runtime_of
from memory_api.api.problems import Responses, problems
from memory_api.auth.identity import KeyScope
from memory_api.core.db_errors import (
    DISK_FULL_SQLSTATE,
    DISK_STATE,
    DatabaseUnavailable,
    sqlstate,
)
from memory_api.core.errors import Unauthorized
from memory_api.core.schemas import Metadata, ResponseModel, with_examples
from memory_api.runtime import Runtime

router = APIRouter(tags=["health"])

CHECK_TIMEOUT_SECONDS = 2.0
"""Time limit of one check."""
WRITE_PROBE = text(
    "with locks as materialized"
    " (select pg_try_advisory_xact_lock(hashtextextended(gen_random_uuid()::text, 0)))"
    " insert into write_probes (payload) select :payload from locks"
)
"""A write and a lock, because PostgreSQL has a limited number of locks."""
SERVER = text("select pg_is_in_recovery() is_standby, current_setting('server_version') version")
WAITING = text("select count(*) from tickets where taken_by is null")
WRITE_CHECK_SECONDS = 1.0
"""How long a write that succeeded is enough, so that requests of strangers cause few writes."""
PROBE_BYTES = 32_768
"""Random bytes of the probe, which fill several pages because they cannot be compressed."""


class Health(ResponseModel):
    """The process is alive."""

    model_config = with_examples({"status": "ok"})

    status: Literal["ok"] = "ok"


class Readiness(ResponseModel):
    """The state of each part. `status` of a part is `ok`, `none` (not configured), `paused` or
    `unavailable`. Only administrators and clients on the loopback address see the parts.
    """

    model_config = with_examples(
        {
            "status": "ok",
            "database": {"status": "ok", "version": "18.4"},
            "queue": {"status": "ok", "waiting": 0},
            "embedder": {"status": "ok", "model": "static"},
            "model": {"status": "none"},
        }
    )

    status: Literal["ok", "unavailable"]
    database: Metadata | None = None
    queue: Metadata | None = None
    embedder: Metadata | None = None
    model: Metadata | None = None


NOT_READY: Responses = {
    503: {
        "model": Readiness,
        "description": "A write to the database fails, or the queue cannot be read.",
    }
}


@router.get("/health", summary="Check that the process is alive", responses=problems(500))
async def get_health() -> Health:
    """Answers as long as the process runs. Does not check the database."""
    return Health()


@router.get(
    "/health/ready",
    summary="Check that the service can work",
    response_model=Readiness,
    responses={**problems(500), **NOT_READY},
)
async def get_readiness(request: Request) -> JSONResponse:
    """Checks the database, the queue, the embedding model and the language model.

    Answers 503 if a write to the database fails, or if the queue cannot be read. On a standby of
    PostgreSQL, which is read-only on purpose, a read is enough. A failing language
    model is shown as `paused` and does not change the status. The state of each part is shown to
    clients on the loopback address, and to API keys with the scope `admin` or `operator`.
    """
    runtime = runtime_of(request)
    parts = {
        "database": await _check_database(runtime, api_state_of(request).write_check),
        "queue": await _check_queue(runtime),
    }
    parts["embedder"] = {"status": "ok", "model": runtime.default_embedder.model}
    parts["model"] = _describe_model(runtime)
    is_ready = all(part["status"] != "unavailable" for part in parts.values())
    body: dict[str, Any] = {"status": "ok" if is_ready else "unavailable"}
    if await _may_see_parts(request):
        body |= parts
    return JSONResponse(body, status_code=200 if is_ready else 503)


async def _may_see_parts(request: Request) -> bool:
    if is_loopback(request):
        return True
    try:
        caller = await authenticate(request)
    except (Unauthorized, DatabaseUnavailable):
        return False
    return caller.has_scope(KeyScope.ADMIN) or caller.has_scope(KeyScope.OPERATOR)


def _describe_model(runtime: Runtime) -> dict[str, Any]:
    """`paused` while all models are paused, with the cause and the seconds until the next request.
    `paused_models` are the names of the paused ones.
    """
    llm = runtime.llm
    if llm is None:
        return {"status": "none"}
    state: dict[str, Any] = {"status": "ok", "provider": llm.provider, "model": llm.model}
    breakers = runtime.circuit_breakers.items()
    paused = [(key.model, b) for key, b in breakers if b.retry_in_seconds and b.cause]
    if paused:
        state["paused_models"] = [model for model, _ in paused]
    if paused and len(paused) == len(breakers):
        first = min((breaker for _, breaker in paused), key=lambda b: b.retry_in_seconds)
        cause = first.cause.code if first.cause else None
        pause = {"error": cause, "seconds": round(first.retry_in_seconds, 1)}
        state |= {"status": "paused"} | pause
    return state


async def _check_database(runtime: Runtime, last: WriteCheck) -> dict[str, Any]:
    """Whether a write succeeds, or on a standby a read. The write is rolled back. After a full disk
    it extends the table.
    """
    if not DISK_STATE.is_full and time.monotonic() - last.at < WRITE_CHECK_SECONDS:
        return last.result
    was_full = DISK_STATE.is_full
    payload = os.urandom(PROBE_BYTES).hex() if was_full else ""
    found: dict[str, Any] = {"status": "ok"}
    try:
        async with (
            asyncio.timeout(CHECK_TIMEOUT_SECONDS),
            runtime.sessions.without_tenant() as session,
        ):
            server = (await session.execute(SERVER)).one()
            found["version"] = server.version
            if server.is_standby:
                return found | {"read_only": True}
            await session.execute(WRITE_PROBE, {"payload": payload})
            raise _ProbeSucceeded
    except _ProbeSucceeded:
        if was_full:
            DISK_STATE.is_full = False
        last.at, last.result = time.monotonic(), found
        return found
    except Exception as error:  # any failure means: not ready
        is_full = sqlstate(error) == DISK_FULL_SQLSTATE
        return {"status": "unavailable", "error": "DiskFull" if is_full else type(error).__name__}


class _ProbeSucceeded(Exception):
    """Rolls the probe back."""


async def _check_queue(runtime: Runtime) -> dict[str, Any]:
    try:
        async with (
            asyncio.timeout(CHECK_TIMEOUT_SECONDS),
            runtime.sessions.without_tenant() as session,
        ):
            return {"status": "ok", "waiting": await session.scalar(WAITING)}
    except Exception as error:  # any failure means: not ready
        return {"status": "unavailable", "error": type(error).__name__}
