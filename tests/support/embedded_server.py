"""What tests read from a running embedded server and from processes that use it."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from memory_api.embedded.data_directory import ClusterDirectory, open_cluster_directory
from memory_api.embedded.server import EmbeddedPostgres
from tests.support.processes import postmasters

QUICK = {"fsync": "off"}
"""PostgreSQL settings of clusters whose data need not survive a crash."""


@asynccontextmanager
async def connect_superuser(pg: EmbeddedPostgres) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(pg.url("postgres", "postgres"))
    try:
        yield connection
    finally:
        await connection.close()


def open_home(pg: EmbeddedPostgres) -> ClusterDirectory:
    return open_cluster_directory(pg.data_dir)


def socket_directory(pg: EmbeddedPostgres) -> Path:
    return Path(pg.url("postgres").partition("host=")[2].partition("&")[0])


def find_postmaster(pg: EmbeddedPostgres) -> int:
    """The process ID of the only postmaster."""
    (pid,) = postmasters(open_home(pg).path)
    return pid


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line that `server_user.py` prints: first the URL of its server."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def release_server(process: subprocess.Popen[str]) -> str:
    """End `server_user.py` and return its last line: `released`, or `stopped` as the last user."""
    output, _ = process.communicate("\n")
    return output.strip()
