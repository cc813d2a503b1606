"""`hansei serve` and `hansei worker`: the API process and the worker process."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import uvicorn
import uvloop

from memory_api.api.http_protocol import HttpProtocol, ProxyHeaders
from memory_api.api.problems import LoggedErrors
from memory_api.auth.queries import tenant_exists
from memory_api.bootstrap import freeze_startup_objects, open_runtime, return_memory
from memory_api.commands.api_processes import check_settings
from memory_api.commands.database import CommandFailed, exit_on_error, open_database
from memory_api.commands.worker_metrics import serve_worker_metrics
from memory_api.core.db_errors import (
    DatabaseLoginRefused,
    DatabaseUnavailable,
    driver_message,
)
from memory_api.core.isolated_work import ISOLATION
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging, get_logger
from memory_api.core.tracing import configure_tracing, shut_down_tracing
from memory_api.embedded.data_directory import PortUnavailable
from memory_api.embedded.ports import open_listener
from memory_api.embedded.supervisor import watch_parent
from memory_api.main import create_app
from memory_api.runs.standstill import watch_loop
from memory_api.runtime import Runtime
from memory_api.worker import run_worker

log = get_logger(__name__)

DRAIN_SECONDS = 3
"""Time to finish open requests after the signal to stop, in seconds."""
SWITCH_INTERVAL_SECONDS = 0.001
"""How long a thread with a large body, or with the terms of a document, runs before the event loop
gets Python's global lock back. With Python's default of 5 ms, a request that waits for the network
five times takes 25 ms longer.
"""
WORKER_PRIORITY = 5
"""Unix niceness that a worker adds to its own, so that requests come first."""


def run_serve(host: str, port: int, data_dir: Path | None, listen_fd: int | None) -> None:
    """`listen_fd` is the socket that the parent of several API processes opened."""
    with exit_on_error():
        settings = Settings.load()
        configure_logging(settings.log_format, settings.log_level)
        check_settings(settings)
        configure_tracing(settings.otel_endpoint, "hansei-api")
        _start_api(settings, host, port, data_dir, listen_fd)


def _start_api(
    settings: Settings, host: str, port: int, data_dir: Path | None, listen_fd: int | None
) -> None:
    with open_database(settings, data_dir, create=True) as urls:
        try:
            listener = (
                open_listener(host, port) if listen_fd is None else socket.socket(fileno=listen_fd)
            )
        except PortUnavailable as error:
            raise CommandFailed(str(error)) from error
        with listener:
            try:
                with suppress(KeyboardInterrupt):  # uvicorn repeats the signal that has stopped it
                    uvloop.run(_serve(settings, urls.app, listener))
            finally:
                shut_down_tracing()


async def _serve(settings: Settings, url: str, listener: socket.socket) -> None:
    _enable_isolation()
    # A runtime that cannot be opened ends the process with its message, before the server starts.
    async with return_memory(), open_runtime(settings, url) as runtime:
        await _check_database(runtime)
        freeze_startup_objects()
        server = uvicorn.Server(
            uvicorn.Config(
                ProxyHeaders(LoggedErrors(create_app(settings, runtime=runtime))),
                http=HttpProtocol,
                proxy_headers=False,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=DRAIN_SECONDS,
                limit_concurrency=settings.max_connections,
            )
        )
        stop = asyncio.Event()
        with watch_parent(stop, signals=False), watch_loop():
            watcher = asyncio.create_task(_shut_down_on(stop, server))
            await server.serve(sockets=[listener])
            watcher.cancel()


def _enable_isolation() -> None:
    """Let large inputs be processed in other processes, and in threads that let others go first.
    Python would import modules of the current folder into these processes.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    ISOLATION.is_enabled = True
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)


async def _check_database(runtime: Runtime) -> None:
    """Raises what ends the process with one line: the database refuses the login, or has no tables.
    A database that cannot be reached may return: requests get 503 until then.
    """
    try:
        async with runtime.sessions.for_tenant(UUID(int=0)) as session:
            await tenant_exists(session)  # any statement on a table
    except DatabaseLoginRefused:
        raise
    except DatabaseUnavailable as error:
        log.warning("database_unavailable", error=driver_message(error))


async def _shut_down_on(stop: asyncio.Event, server: uvicorn.Server) -> None:
    await stop.wait()
    server.should_exit = True


def run_worker_command(data_dir: Path | None) -> None:
    with exit_on_error():
        settings = Settings.load()
        configure_logging(settings.log_format, settings.log_level)
        check_settings(settings)
        configure_tracing(settings.otel_endpoint, "hansei-worker")
        _start_worker(settings, data_dir)


def _start_worker(settings: Settings, data_dir: Path | None) -> None:
    with open_database(settings, data_dir, create=True) as urls:
        # The worker uses the owner's URL only to maintain vector indexes.
        worker_settings = settings.model_copy(update={"owner_url": urls.owner})
        _lower_priority()
        try:
            uvloop.run(_work(worker_settings, urls.worker))
        finally:
            shut_down_tracing()


def _lower_priority() -> None:
    """After the database was started, which would inherit it."""
    os.nice(WORKER_PRIORITY)
    if os.getsid(0) == os.getpid():  # Linux may schedule sessions against each other
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(WORKER_PRIORITY))


async def _work(settings: Settings, url: str) -> None:
    _enable_isolation()
    async with return_memory(), open_runtime(settings, url, background=True) as runtime:
        await _check_database(runtime)
        freeze_startup_objects()
        stop = asyncio.Event()
        with watch_parent(stop), watch_loop(url):
            async with serve_worker_metrics(runtime):
                await run_worker(runtime, stop)
