"""`hansei serve`: the API process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import uvicorn
import uvloop

from apps.memory_api.commands.database import database
from apps.memory_api.commands.failing import Failed, one_line
from apps.memory_api.core.settings import Settings
from apps.memory_api.core.telemetry import configure
from apps.memory_api.embedded.errors import PortUnavailable
from apps.memory_api.embedded.leash import leashed
from apps.memory_api.embedded.ports import check_port
from apps.memory_api.evaluation.registry import check as check_evaluators
from apps.memory_api.main import create_app

DRAIN_SECONDS = 4
"""How long requests at hand may take once the process is told to leave."""


def run(host: str, port: int, data_dir: Path | None) -> None:
    with one_line():
        settings = Settings.load()
        configure(settings.log_format, settings.log_level)
        check_evaluators(settings)
        _start(settings, host, port, data_dir)


def _start(settings: Settings, host: str, port: int, data_dir: Path | None) -> None:
    with database(settings, data_dir) as urls:
        try:
            check_port(host, port)
        except PortUnavailable as error:
            raise Failed(str(error)) from error
        uvloop.run(_serve(settings, urls.app, host, port))


async def _serve(settings: Settings, url: str, host: str, port: int) -> None:
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings, url),
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
    )
    stop = asyncio.Event()
    with leashed(stop, signals=False):
        watcher = asyncio.create_task(_leave(stop, server))
        await server.serve()
        watcher.cancel()


async def _leave(stop: asyncio.Event, server: uvicorn.Server) -> None:
    await stop.wait()
    server.should_exit = True
