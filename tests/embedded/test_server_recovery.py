"""A server starts whatever an earlier one left behind, or names the reason."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import asyncpg
import psutil
import pytest

from memory_api.embedded.data_directory import (
    PASSWORD_FILE,
    SOCKET,
    EmbeddedPostgresError,
    open_cluster_directory,
)
from memory_api.embedded.server import EmbeddedPostgres
from tests.support.embedded_server import (
    QUICK,
    connect_superuser,
    find_postmaster,
    open_home,
    socket_directory,
)
from tests.support.processes import eventually

BUSY = """
do $$ declare until timestamptz := clock_timestamp() + interval '1 second';
begin while clock_timestamp() < until loop end loop; end $$
"""
COMPUTING = (
    "select count(*) from pg_stat_activity"
    " where state = 'active' and wait_event is null and query ~ '^\\s*do '"
)


async def test_data_survives_killed_postmaster(folder: Path) -> None:
    with EmbeddedPostgres(folder) as pg:  # with fsync, as shipped
        busy = await asyncpg.connect(pg.url("postgres", "postgres"))
        await busy.execute("create table kept (n int)")
        await busy.execute("insert into kept select generate_series(1, 1000)")
        # a backend that computes does not notice, and is still there when the next server starts
        computing = asyncio.create_task(busy.execute(BUSY))
        async with connect_superuser(pg) as other:
            while not await other.fetchval(COMPUTING):
                await asyncio.sleep(0.01)
        os.kill(find_postmaster(pg), signal.SIGKILL)
        eventually(lambda: not pg.ready())
        await asyncio.to_thread(pg.start)
        await asyncio.wait([computing])
        busy.terminate()
        async with connect_superuser(pg) as connection:
            assert await connection.fetchval("select count(*) from kept") == 1000


@pytest.mark.parametrize("what", ["stranger", "zombie"])
def test_other_process_with_old_pid_is_not_the_server(stopped_cluster: Path, what: str) -> None:
    pg = EmbeddedPostgres(stopped_cluster, conf=QUICK).start()
    home = open_home(pg)
    pid_file = home.data / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    assert pg.stop()
    # of the server's own account: PostgreSQL lets no other user's process stop it
    command = ["/bin/sleep", "600"] if what == "stranger" else ["/bin/sleep", "0"]
    with subprocess.Popen(command, user=home.account.uid if home.account else None) as other:
        if what == "zombie":
            eventually(lambda: psutil.Process(other.pid).status() == psutil.STATUS_ZOMBIE)
        pid_file.write_text("\n".join([str(other.pid), *lines[1:]]) + "\n")
        pid_file.chmod(0o600)
        home.chown_to_server(pid_file)
        try:
            with EmbeddedPostgres(stopped_cluster, conf=QUICK) as again:
                assert again.ready()
        finally:
            other.kill()


def test_interrupted_initdb_is_replaced(folder: Path) -> None:
    draft = open_cluster_directory(folder).path / "data.new"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("18\n")
    (draft / "half").write_text("a file")
    with EmbeddedPostgres(folder, conf=QUICK) as pg:
        assert pg.ready()
        assert not draft.exists()
        assert not (open_home(pg).data / "half").exists()


def test_stale_sockets_and_an_empty_pid_file_are_cleared(stopped_cluster: Path) -> None:
    pg = EmbeddedPostgres(stopped_cluster, conf=QUICK).start()
    sockets, data = socket_directory(pg), open_home(pg).data
    assert pg.stop()
    sockets.mkdir(mode=0o700)
    (sockets / SOCKET).write_text("")
    (sockets / f"{SOCKET}.lock").write_text(f"{os.getpid()}\n")
    (data / "postmaster.pid").write_text("")
    for made in (sockets, data / "postmaster.pid"):
        os.chown(made, data.stat().st_uid, data.stat().st_gid)
    with pg:
        assert pg.ready()


async def test_deleted_socket_is_restored(server: EmbeddedPostgres) -> None:
    (socket_directory(server) / SOCKET).unlink()
    assert not server.ready()
    server.start()
    async with connect_superuser(server) as connection:
        assert await connection.fetchval("select 1") == 1


def test_another_major_version_is_refused(folder: Path) -> None:
    data = open_cluster_directory(folder).data
    data.mkdir()
    (data / "PG_VERSION").write_text("16\n")
    with pytest.raises(
        EmbeddedPostgresError, match="a cluster of PostgreSQL 16, but this release has 18"
    ):
        EmbeddedPostgres(folder).start()


def test_lost_passwords_are_reported(stopped_cluster: Path) -> None:
    kept = (stopped_cluster / PASSWORD_FILE).rename(stopped_cluster / "kept")
    try:
        with pytest.raises(EmbeddedPostgresError, match=f"{PASSWORD_FILE} is missing"):
            EmbeddedPostgres(stopped_cluster).start()
    finally:
        kept.rename(stopped_cluster / PASSWORD_FILE)


def test_failed_start_shows_log_and_releases_locks(stopped_cluster: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="shared_buffers"):
        EmbeddedPostgres(stopped_cluster, conf=QUICK | {"shared_buffers": "much"}).start()
    with EmbeddedPostgres(stopped_cluster, conf=QUICK) as pg:
        assert pg.ready()
    with pytest.raises(EmbeddedPostgresError, match="Invalid PostgreSQL setting"):
        EmbeddedPostgres(stopped_cluster, conf={"jit": "on'\nport = 1"}).start()
