"""The files of a cluster: initdb, configuration, pid file."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from memory_api.embedded.binaries import MAJOR, launch, run
from memory_api.embedded.data_directory import (
    PORT,
    SOCKET,
    SUPERUSER,
    ClusterDirectory,
    EmbeddedPostgresError,
    write_private,
)

SETTINGS = {
    "listen_addresses": "",  # Unix socket only
    "port": str(PORT),
    "max_connections": "200",
    "shared_buffers": "256MB",
    "random_page_cost": "1.1",
    "jit": "off",
    "autovacuum_naptime": "15s",  # searches read the index alone only after a vacuum
    "max_notify_queue_pages": "8192",  # 64 MB instead of 8 GB; every login can fill it
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
MAX_MEMORY_BYTES = 2**30
"""Memory of one connection, without shared memory. The same limit is in docker-compose.yml."""
LIMIT_MEMORY = (
    ("/bin/sh", "-c", f'ulimit -d {MAX_MEMORY_BYTES // 1024}; exec "$@"', "sh")
    if sys.platform == "linux"
    else ()
)
"""The start of a command that sets this limit: a statement that needs more memory fails. No setting
of PostgreSQL does that. Other systems do not count mapped memory.
"""
_UNUSED_PID = 2**31 - 1  # above the largest pid of all systems
_MAX_LOG_BYTES = 10_000_000


@dataclass(frozen=True)
class Postmaster:
    """A running server, read from its pid file. `status` is starting, ready, stopping or empty."""

    pid: int
    socket_dir: Path | None
    status: str


def cluster_exists(home: ClusterDirectory) -> bool:
    """Whether `initdb` has finished. Raises EmbeddedPostgresError for another major version."""
    try:
        version = (home.data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return False
    if version != str(MAJOR):
        raise EmbeddedPostgresError(
            f"{home.data} is a cluster of PostgreSQL {version}, but this release has {MAJOR}."
            " Move the data with pg_dump and psql, or use another data directory."
        )
    return True


def make_cluster(
    home: ClusterDirectory, programs: Path, password: str, *, sync: bool, lock: int
) -> None:
    """Run initdb in a draft folder and rename this, so that an incomplete cluster is never used.

    initdb inherits the file descriptor `lock`, so the cluster stays locked while initdb is writing,
    even if its parent is killed.
    """
    draft, secret = home.path / "data.new", home.path / "initdb-password"
    if draft.exists():
        shutil.rmtree(draft)
    draft.mkdir(mode=0o700)
    home.chown_to_server(draft)
    write_private(secret, password)
    home.chown_to_server(secret)
    command = [programs / "initdb", f"--pgdata={draft}", f"--username={SUPERUSER}"]
    command += [f"--pwfile={secret}", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
    command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"]
    if not sync:
        command.append("--no-sync")
    try:
        status, output = run(command, home.account, pass_fds=[lock])
    finally:
        secret.unlink()
    if status:
        raise EmbeddedPostgresError(f"initdb failed:\n{output}")
    draft.rename(home.data)


def write_settings(home: ClusterDirectory, socket_dir: Path, conf: Mapping[str, str]) -> Path:
    """Write the server's configuration file, at every start. ALTER SYSTEM overrides it."""
    settings = SETTINGS | {"unix_socket_directories": f'"{socket_dir}"'} | dict(conf)
    lines = ["# hansei writes this file at every start. Use ALTER SYSTEM to change a setting."]
    for name, value in settings.items():
        if not re.fullmatch(r"[a-z_.]+", name) or "\n" in value:
            raise EmbeddedPostgresError(f"Invalid PostgreSQL setting: {name} = {value!r}")
        quoted = value.replace("\\", "\\\\").replace("'", "''")
        lines.append(f"{name} = '{quoted}'")
    path = home.path / "postgresql.conf"
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.write_text("\n".join(lines) + "\n")
    draft.chmod(0o644)
    draft.replace(path)
    return path


def spawn_postmaster(
    home: ClusterDirectory, programs: Path, settings: Path
) -> subprocess.Popen[bytes]:
    if home.log.exists() and home.log.stat().st_size > _MAX_LOG_BYTES:
        home.log.replace(home.log.with_suffix(".log.1"))
    with open(os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        command = [programs / "postgres", "-D", home.data, "-c", f"config_file={settings}"]
        return launch([*LIMIT_MEMORY, *command], home.account, output=log)


def find_postmaster(home: ClusterDirectory) -> Postmaster | None:
    """The running server of this cluster. Ignores a zombie and another process with the same
    pid.
    """
    lines = _pid_file_lines(home)
    if not lines or not lines[0].isdigit() or not _is_postmaster(int(lines[0]), home.data):
        return None
    return Postmaster(
        pid=int(lines[0]),
        socket_dir=Path(lines[4]) if len(lines) > 4 and lines[4] else None,
        status=lines[7].strip() if len(lines) > 7 else "",
    )


def clear_stale_files(home: ClusterDirectory, socket_dir: Path) -> None:
    """Remove leftovers of a dead server that would prevent a start. The caller holds the lock.

    PostgreSQL takes a zombie postmaster (if pid 1 does not reap it) and another process with its
    pid for a running server. So the pid in the pid file is replaced. The shared memory key in it
    stays, because PostgreSQL needs it to detect orphaned backends that are still writing.
    """
    for leftover in (SOCKET, f"{SOCKET}.lock"):
        (socket_dir / leftover).unlink(missing_ok=True)
    lines = _pid_file_lines(home)
    if lines is None:
        return
    path = home.data / "postmaster.pid"
    if not lines:  # incomplete; PostgreSQL would refuse it
        path.unlink()
        return
    text = "\n".join([str(_UNUSED_PID), *lines[1:]]) + "\n"
    with open(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "w") as file:
        file.write(text)


def _pid_file_lines(home: ClusterDirectory) -> list[str] | None:
    try:
        return (home.data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None


def _is_postmaster(pid: int, data: Path) -> bool:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        program, *arguments = process.cmdline() or [""]
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # access to our own server is not denied
        return False
    return Path(program).name == "postgres" and str(data) in arguments
