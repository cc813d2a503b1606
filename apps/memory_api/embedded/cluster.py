"""The files of one cluster: how they are made and configured, who serves them."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from apps.memory_api.embedded.binaries import MAJOR, launch, run
from apps.memory_api.embedded.errors import EmbeddedPostgresError
from apps.memory_api.embedded.home import Home
from apps.memory_api.embedded.passwords import SUPERUSER, write_private
from apps.memory_api.embedded.sockets import PORT, SOCKET

SETTINGS = {
    "listen_addresses": "",  # the unix socket only
    "port": str(PORT),
    "max_connections": "200",
    "shared_buffers": "256MB",
    "random_page_cost": "1.1",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
_NO_PROCESS = 2**31 - 1  # above every system's largest pid
_LOG_BYTES = 10_000_000


@dataclass(frozen=True)
class Postmaster:
    """A live server, as its pid file tells. `status` is starting, ready, stopping or empty."""

    pid: int
    socket_dir: Path | None
    status: str


def cluster_exists(home: Home) -> bool:
    """Raises EmbeddedPostgresError for a cluster of another major version."""
    try:
        version = (home.data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return False
    if version != str(MAJOR):
        raise EmbeddedPostgresError(
            f"{home.data} was made by PostgreSQL {version} and this is {MAJOR}:"
            " move the data with pg_dump and psql, or choose another data folder"
        )
    return True


def make_cluster(home: Home, programs: Path, password: str, *, sync: bool, lock: int) -> None:
    """Run initdb beside the final place, then rename: a cut-off one is never taken for whole.

    initdb inherits the file descriptor `lock`, so the cluster stays locked for as long as an initdb
    whose parent was killed is still writing.
    """
    draft, secret = home.path / "data.new", home.path / "initdb-password"
    if draft.exists():
        shutil.rmtree(draft)
    draft.mkdir(mode=0o700)
    home.give(draft)
    write_private(secret, password)
    home.give(secret)
    command = [programs / "initdb", f"--pgdata={draft}", f"--username={SUPERUSER}"]
    command += [f"--pwfile={secret}", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
    command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"]
    if not sync:
        command.append("--no-sync")
    try:
        status, said = run(command, home.account, pass_fds=[lock])
    finally:
        secret.unlink()
    if status:
        raise EmbeddedPostgresError(f"initdb failed:\n{said}")
    draft.rename(home.data)


def write_settings(home: Home, socket_dir: Path, conf: Mapping[str, str]) -> Path:
    """The server's configuration file, written at every start; ALTER SYSTEM wins over it."""
    settings = SETTINGS | {"unix_socket_directories": f'"{socket_dir}"'} | dict(conf)
    lines = ["# Written by hansei at every start. To change a setting, use ALTER SYSTEM."]
    for name, value in settings.items():
        if not re.fullmatch(r"[a-z_.]+", name) or "\n" in value:
            raise EmbeddedPostgresError(f"not a PostgreSQL setting: {name} = {value!r}")
        quoted = value.replace("\\", "\\\\").replace("'", "''")
        lines.append(f"{name} = '{quoted}'")
    path = home.path / "postgresql.conf"
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.write_text("\n".join(lines) + "\n")
    draft.chmod(0o644)
    draft.replace(path)
    return path


def spawn_postmaster(home: Home, programs: Path, settings: Path) -> subprocess.Popen[bytes]:
    if home.log.exists() and home.log.stat().st_size > _LOG_BYTES:
        home.log.replace(home.log.with_suffix(".log.1"))
    with open(os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        command = [programs / "postgres", "-D", home.data, "-c", f"config_file={settings}"]
        return launch(command, home.account, output=log)


def find_postmaster(home: Home) -> Postmaster | None:
    """The live server of this cluster. A zombie, or another process with its old pid, is none."""
    lines = _pid_file_lines(home)
    if not lines or not lines[0].isdigit() or not _is_postmaster(int(lines[0]), home.data):
        return None
    return Postmaster(
        pid=int(lines[0]),
        socket_dir=Path(lines[4]) if len(lines) > 4 and lines[4] else None,
        status=lines[7].strip() if len(lines) > 7 else "",
    )


def clear_stale_files(home: Home, socket_dir: Path) -> None:
    """Make way for a start when no server lives, under the cluster's lock.

    A zombie postmaster (where pid 1 reaps slowly or never) and a stranger that got its pid both
    count as a running server to PostgreSQL. Only the pid is replaced in the pid file: its shared
    memory key stays, by which PostgreSQL refuses to start while orphaned backends still write.
    """
    for leftover in (SOCKET, f"{SOCKET}.lock"):
        (socket_dir / leftover).unlink(missing_ok=True)
    lines = _pid_file_lines(home)
    if lines is None:
        return
    path = home.data / "postmaster.pid"
    if not lines:  # cut off while it was made; PostgreSQL would refuse it
        path.unlink()
        return
    text = "\n".join([str(_NO_PROCESS), *lines[1:]]) + "\n"
    with open(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "w") as file:
        file.write(text)


def _pid_file_lines(home: Home) -> list[str] | None:
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
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # ours is never denied to us
        return False
    return Path(program).name == "postgres" and str(data) in arguments
