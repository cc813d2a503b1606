"""Which database a command works on: the one that is configured, or the embedded one of a data
directory."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from apps.memory_api.commands.failing import Failed
from apps.memory_api.core.settings import Settings
from apps.memory_api.embedded.errors import EmbeddedPostgresError
from apps.memory_api.embedded.passwords import APP, OWNER, WORKER
from apps.memory_api.embedded.postgres import EmbeddedPostgres
from apps.memory_api.embedded.provision import provision


@dataclass(frozen=True)
class Urls:
    """Connection URLs by role. `embedded` is the server they lead to when it is ours."""

    app: str
    worker: str
    owner: str | None
    embedded: EmbeddedPostgres | None = None

    def need_owner(self) -> str:
        if self.owner is None:
            raise Failed("Set HANSEI_OWNER_URL to the URL of the database's owner.")
        return self.owner


@contextmanager
def database(settings: Settings, data_dir: Path | None) -> Generator[Urls]:
    """DATABASE_URL when it is set and no data directory is named; else the embedded server, which
    runs at least as long as the block."""
    app = settings.database_url or settings.worker_url
    if data_dir is None and app is not None:
        yield Urls(app, settings.worker_url or app, settings.owner_url)
        return
    server = EmbeddedPostgres(data_dir or settings.data_dir)
    try:
        server.start()
    except EmbeddedPostgresError as error:
        raise Failed(f"The embedded database does not start: {error}") from error
    try:
        asyncio.run(provision(server))
        yield Urls(server.url(APP), server.url(WORKER), server.url(OWNER), server)
    finally:
        server.stop()
