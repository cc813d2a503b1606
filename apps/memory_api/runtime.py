"""What every process has: one frozen `Runtime`, opened alike by API, worker, command line and
tests.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from apps.memory_api.core.db import Sessions, open_engine
from apps.memory_api.core.errors import Misconfigured
from apps.memory_api.core.settings import Settings
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.embeddings.registry import open_embedder
from apps.memory_api.jobs.pgqueuer import PgQueue
from apps.memory_api.jobs.port import JobQueue


def _process_name() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


@dataclass(frozen=True)
class Runtime:
    settings: Settings
    sessions: Sessions
    embedder: Embedder
    queue: JobQueue
    name: str = field(default_factory=_process_name)
    """Who holds a lease: host and process."""

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.settings.lease_seconds)


@asynccontextmanager
async def open_runtime(settings: Settings, database_url: str) -> AsyncGenerator[Runtime]:
    """Everything a process needs, closed on the way out."""
    embedder = _embedder(settings)
    engine = open_engine(
        database_url, pool_size=settings.pool_size, statement_cache=settings.statement_cache
    )
    queue = PgQueue(
        settings.listen_url or database_url, heartbeat=timedelta(seconds=settings.lease_seconds)
    )
    try:
        yield Runtime(settings, Sessions(engine), embedder, queue)
    finally:
        await embedder.aclose()
        await engine.dispose()


def _embedder(settings: Settings) -> Embedder:
    key = settings.openai_api_key
    try:
        return open_embedder(
            settings.embedding_provider,
            model=settings.embedding_model,
            api_key=key.get_secret_value() if key else None,
            base_url=settings.openai_base_url,
            dimensions=settings.embedding_dimensions,
        )
    except ValueError as error:
        raise Misconfigured(str(error)) from error
