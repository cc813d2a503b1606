"""The API process: `create_app(settings, database_url)`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from apps.memory_api import health
from apps.memory_api.account.budget_router import router as budgets
from apps.memory_api.account.router import router as account
from apps.memory_api.core import http, openapi
from apps.memory_api.core.collector import settle_collector
from apps.memory_api.core.middleware import RequestLog
from apps.memory_api.core.settings import Settings
from apps.memory_api.evaluation.router import router as evaluations
from apps.memory_api.memory.router import router as memories
from apps.memory_api.playbook.router import router as playbooks
from apps.memory_api.reflection.insights.router import router as trajectories
from apps.memory_api.reflection.router import router as reflections
from apps.memory_api.reflection.transcripts.router import router as transcripts
from apps.memory_api.runtime import Runtime, open_runtime
from apps.memory_api.traces.router import router as traces
from apps.memory_api.workers.router import router as workflow

ROUTERS = (
    *(health.router, account, budgets),
    *(reflections, trajectories, transcripts),
    *(traces, evaluations, memories, playbooks, workflow),
)


def create_app(
    settings: Settings, database_url: str = "", *, runtime: Runtime | None = None
) -> FastAPI:
    """The application. It opens a `Runtime` for its life, unless it is given one (tests)."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        if runtime is not None:
            app.state.runtime = runtime
            yield
            return
        async with open_runtime(settings, database_url) as opened:
            app.state.runtime = opened
            settle_collector()
            yield

    app = FastAPI(
        title="Hansei",
        version="0.1.0",
        description="Reflective memory for AI agents: traces in, lessons out.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        responses=openapi.RESPONSES,
    )
    for router in ROUTERS:
        app.include_router(router)
    http.install(app)
    openapi.install_docs(app)
    app.add_middleware(RequestLog)
    return app
