"""The port of a worker on which `GET /metrics` answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI

from memory_api.api import exposition
from memory_api.api.problems import install_error_handlers
from memory_api.commands.database import CommandFailed
from memory_api.embedded.data_directory import PortUnavailable
from memory_api.embedded.ports import check_port
from memory_api.runtime import Runtime

SHUTDOWN_SECONDS = 1


class WorkerMetricsServer(uvicorn.Server):
    """A server in the process of the worker. The worker handles the signals."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def serve_worker_metrics(runtime: Runtime) -> AsyncGenerator[None]:
    """Serve `/metrics` on `HANSEI_WORKER_METRICS_PORT` while the block runs; nothing if it is
    unset. Raises `CommandFailed` if the port is taken.
    """
    port = runtime.settings.worker_metrics_port
    if port is None:
        yield
        return
    host = "127.0.0.1" if runtime.settings.metrics_token is None else "0.0.0.0"
    try:
        check_port(host, port)
    except PortUnavailable as error:
        raise CommandFailed(str(error)) from error
    server = WorkerMetricsServer(
        uvicorn.Config(
            _metrics_app(runtime),
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )
    task = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await task


def _metrics_app(runtime: Runtime) -> FastAPI:
    app = FastAPI(openapi_url=None)
    app.state.runtime = runtime
    app.include_router(exposition.router)
    install_error_handlers(app)
    return app
