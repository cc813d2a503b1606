"""`hansei worker`: the worker process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import uvloop

from apps.memory_api.commands.database import database
from apps.memory_api.commands.failing import one_line
from apps.memory_api.core.settings import Settings
from apps.memory_api.core.telemetry import configure
from apps.memory_api.embedded.leash import leashed
from apps.memory_api.evaluation.registry import check as check_evaluators
from apps.memory_api.worker import main


def run(data_dir: Path | None) -> None:
    with one_line():
        settings = Settings.load()
        configure(settings.log_format, settings.log_level)
        check_evaluators(settings)
        _start(settings, data_dir)


def _start(settings: Settings, data_dir: Path | None) -> None:
    with database(settings, data_dir) as urls:
        # the owner's URL is for the upkeep of vector indexes alone
        known = settings.model_copy(update={"owner_url": urls.owner})
        uvloop.run(_work(known, urls.worker))


async def _work(settings: Settings, url: str) -> None:
    stop = asyncio.Event()
    with leashed(stop):
        await main(settings, url, stop)
