"""PgBouncer in transaction mode in front of an installation."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.installation import Installation, until
from tests.support.processes import free_port

ROLES = ("hansei_app", "hansei_worker")
SERVER_CONNECTIONS = 3
"""Fewer than the connections of one process, so that transactions share them."""


@contextmanager
def pooler(installation: Installation, folder: Path) -> Iterator[dict[str, str]]:
    """Run PgBouncer. Yields the URL of each role through it."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("PgBouncer is not installed")
    port = free_port()
    folder.chmod(0o755)
    users = folder / "users.txt"
    users.write_text("".join(f'"{r}" "{installation.pg.password(r)}"\n' for r in ROLES))
    socket_folder = parse_qs(urlsplit(installation.pg.url("postgres")).query)["host"][0]
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\nhansei = host={socket_folder} dbname=hansei\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = scram-sha-256\nauth_file = {users}\n"
        f"pool_mode = transaction\ndefault_pool_size = {SERVER_CONNECTIONS}\n"
        "ignore_startup_parameters = jit\n"
    )
    # It refuses to run as root, and only the server's account may use its socket.
    account = installation.data_folder().stat() if os.geteuid() == 0 else None
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(settings)],
            stdout=log,
            stderr=log,
            cwd="/",
            user=account.st_uid if account else None,
            group=account.st_gid if account else None,
        )
    try:
        until(lambda: socket.create_connection(("127.0.0.1", port)).close() is None, "PgBouncer")
        yield {
            role: f"postgresql://{role}:{installation.pg.password(role)}@127.0.0.1:{port}/hansei"
            for role in ROLES
        }
    finally:
        process.terminate()
        process.wait()
