"""Is it alive, and can it work?"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from sqlalchemy import text

from apps.memory_api.core.openapi import shown
from apps.memory_api.core.schemas import Metadata, Model
from apps.memory_api.deps import runtime_of
from apps.memory_api.runtime import Runtime

router = APIRouter(tags=["health"])

PATIENCE = 2.0
"""Seconds the database has to answer."""


class Alive(Model):
    model_config = shown({"status": "ok"})

    status: Literal["ok"] = "ok"


class Ready(Model):
    """Each part with its `status`: ok, none (not configured), paused or unavailable."""

    model_config = shown(
        {
            "status": "ok",
            "database": {"status": "ok", "version": "18.4"},
            "queue": {"status": "ok", "waiting": 0},
            "embedder": {"status": "ok", "model": "static"},
            "model": {"status": "none"},
        }
    )

    status: Literal["ok", "unavailable"]
    database: Metadata
    queue: Metadata
    embedder: Metadata
    model: Metadata


NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": Ready, "description": "A part the service needs is away."}
}


@router.get("/health")
async def alive() -> Alive:
    """The process answers; nothing else is asked."""
    return Alive()


@router.get("/health/ready", response_model=Ready, responses=NOT_READY)
async def ready(request: Request) -> JSONResponse:
    """Whether requests can be served: database, queue, embedder and model, each with its state. 503
    when the database or the queue is away; a model that is left alone is told and stops nothing.
    """
    runtime = runtime_of(request)
    parts = {"database": await _database(runtime), "queue": await _queue(runtime)}
    parts["embedder"] = {"status": "ok", "model": runtime.embedder.model}
    parts["model"] = _model(runtime)
    good = all(part["status"] != "unavailable" for part in parts.values())
    body = {"status": "ok" if good else "unavailable", **parts}
    return JSONResponse(body, status_code=200 if good else 503)


def _model(runtime: Runtime) -> dict[str, Any]:
    """`paused` while its provider fails, with the cause and the seconds until it is asked again."""
    llm, gate = runtime.llm, runtime.gate
    if llm is None:
        return {"status": "none"}
    found: dict[str, Any] = {"status": "ok", "provider": llm.provider, "model": llm.model}
    if gate.wait and gate.cause:
        found |= {"status": "paused", "error": gate.cause.code, "seconds": round(gate.wait, 1)}
    return found


async def _database(runtime: Runtime) -> dict[str, Any]:
    return await _ask(runtime, "select current_setting('server_version')", "version")


async def _queue(runtime: Runtime) -> dict[str, Any]:
    return await _ask(runtime, "select count(*) from pgqueuer where status = 'queued'", "waiting")


async def _ask(runtime: Runtime, statement: str, name: str) -> dict[str, Any]:
    try:
        async with asyncio.timeout(PATIENCE), runtime.sessions.shared() as session:
            return {"status": "ok", name: await session.scalar(text(statement))}
    except Exception as error:  # whatever it is, the answer is: not ready, because of this
        return {"status": "unavailable", "error": type(error).__name__}
