"""The API process: `create_app(settings, database_url)`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from memory_api.analytics.router import router as analytics_router
from memory_api.api import exposition, health, problem_pages
from memory_api.api.deps import ApiState
from memory_api.api.openapi import install_docs, install_openapi, operation_id
from memory_api.api.problems import install_error_handlers
from memory_api.api.request_log import RequestLogMiddleware
from memory_api.bootstrap import freeze_startup_objects, open_runtime
from memory_api.budgets.router import router as budgets_router
from memory_api.collections.router import document_router
from memory_api.collections.router import router as collections_router
from memory_api.console.router import router as console_router
from memory_api.core.settings import Settings
from memory_api.curation.router import router as curation_router
from memory_api.erasures.router import router as erasures_router
from memory_api.evaluation.router import router as evaluation_router
from memory_api.evaluation_reports.router import router as evaluation_reports_router
from memory_api.grace.config import load_config
from memory_api.grace.router import router as grace_router
from memory_api.maintenance.retention.router import router as retention_router
from memory_api.maintenance.router import router as maintenance_router
from memory_api.mcp_endpoint import install_mcp
from memory_api.memories.router import router as memories_router
from memory_api.playbooks.bullets.router import router as bullets_router
from memory_api.playbooks.effects.router import router as effects_router
from memory_api.playbooks.history.router import router as history_router
from memory_api.playbooks.proposals.router import router as proposals_router
from memory_api.playbooks.retrieval.router import router as retrieval_router
from memory_api.playbooks.router import router as playbooks_router
from memory_api.playbooks.sections import check_section_file
from memory_api.playbooks.verdicts.router import router as verdicts_router
from memory_api.reflection.router import router as reflection_router
from memory_api.reflection.trajectories.router import router as trajectories_router
from memory_api.reflection.transcripts.router import router as transcripts_router
from memory_api.runs.router import router as runs_router
from memory_api.runtime import Runtime
from memory_api.tenants.router import router as tenants_router
from memory_api.traces.otlp.router import router as otlp_router
from memory_api.traces.router import router as traces_router
from memory_api.webhooks.router import router as webhooks_router
from memory_api.workflow.router import router as workflow_router

ROUTERS = (
    # A request is compared with the routes in this order: the most frequent ones are first.
    *(retrieval_router, memories_router),
    *(health.router, exposition.router, problem_pages.router),
    *(tenants_router, runs_router, budgets_router, analytics_router),
    *(maintenance_router, retention_router, erasures_router),
    *(traces_router, otlp_router, evaluation_router),
    *(reflection_router, trajectories_router, transcripts_router),
    *(playbooks_router, history_router, proposals_router),
    *(bullets_router, verdicts_router, effects_router, curation_router),
    *(collections_router, document_router, grace_router),
    *(evaluation_reports_router, webhooks_router, workflow_router, console_router),
)

OWN_SPANS: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
"""FastAPI's own spans would repeat those of `RequestLogMiddleware`, and it would look for a
provider of OpenTelemetry in each request.
"""


def create_app(
    settings: Settings, database_url: str = "", *, runtime: Runtime | None = None
) -> FastAPI:
    """The application. It opens a `Runtime` for its lifetime unless one is passed (tests)."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        check_section_file(settings)  # an invalid section file must prevent the start
        load_config()  # also settings of GRACE that are not valid
        async with AsyncExitStack() as stack:
            if runtime is not None:
                app.state.runtime = runtime
            else:
                app.state.runtime = await stack.enter_async_context(
                    open_runtime(settings, database_url)
                )
                freeze_startup_objects()
            app.state.api = ApiState.of(app.state.runtime.settings)
            stack.push_async_callback(mcp.stop)
            yield

    app = FastAPI(
        title="Hansei",
        version=version("hansei-server"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,  # a redirect would name the host that the client sent
        generate_unique_id_function=operation_id,
        telemetry=OWN_SPANS,
    )
    for router in ROUTERS:
        app.include_router(router)
    mcp = install_mcp(app)
    install_error_handlers(app)
    install_openapi(app)
    install_docs(app)
    app.add_middleware(RequestLogMiddleware)
    return app
