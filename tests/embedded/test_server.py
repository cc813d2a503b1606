"""One server, shared by the processes that use it, and its settings."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from memory_api.embedded.binaries import find_binaries
from memory_api.embedded.data_directory import (
    EmbeddedPostgresError,
)
from memory_api.embedded.server import EmbeddedPostgres
from tests.support.embedded_server import (
    QUICK,
    connect_superuser,
    open_home,
    read_line,
    release_server,
)
from tests.support.processes import Person, eventually, postmasters


def test_concurrent_users_share_server_and_last_one_stops_it(
    person: Person,
    new_folder: Callable[[Person], Path],
    processes: list[subprocess.Popen[str]],
) -> None:
    folder = new_folder(person)
    processes += [person.run("server_user.py", folder) for _ in range(5)]
    urls = {read_line(process) for process in processes}
    assert len(urls) == 1
    assert urls.pop().startswith("postgresql://postgres:")

    victim, *others, last = processes
    victim.kill()  # leaves nothing behind that would count as a user
    victim.wait()
    assert [release_server(process) for process in others] == ["released"] * 3
    assert release_server(last) == "stopped"
    # a normal user's cluster lies in its folder; root's is named there
    pointer = folder / "postgres-home"
    home = Path(pointer.read_text()) if pointer.exists() else folder / "postgres"
    assert postmasters(home) == []
    assert not Path(f"/proc/{victim.pid}/cwd").exists()


def test_server_of_killed_user_is_reused_and_stopped(
    current_user: Person, folder: Path, processes: list[subprocess.Popen[str]]
) -> None:
    processes.append(current_user.run("server_user.py", folder))
    url = read_line(processes[0])
    processes[0].kill()
    processes[0].wait()
    pg = EmbeddedPostgres(folder).start()
    assert pg.url("postgres", "postgres") == url
    assert pg.stop()
    assert postmasters(open_home(pg).path) == []


def test_other_temp_directory_finds_same_server(
    current_user: Person,
    server: EmbeddedPostgres,
    tmp_path: Path,
    processes: list[subprocess.Popen[str]],
) -> None:
    processes.append(current_user.run("server_user.py", server.data_dir, TMPDIR=str(tmp_path)))
    assert read_line(processes[0]) == server.url("postgres", "postgres")
    assert release_server(processes[0]) == "released"


def test_stop_requires_start(stopped_cluster: Path) -> None:
    pg = EmbeddedPostgres(stopped_cluster, conf=QUICK)
    assert not pg.stop()
    assert not pg.ready()
    with pytest.raises(EmbeddedPostgresError, match=r"start\(\)"):
        pg.url("postgres")
    with pg:
        assert pg.ready()
    assert not pg.ready()
    assert not pg.stop()


def test_destroy_is_refused_while_others_use_it(pg: EmbeddedPostgres) -> None:
    with pytest.raises(EmbeddedPostgresError, match="in use"):
        EmbeddedPostgres(pg.data_dir).destroy()
    home = open_home(pg).path
    assert pg.ready()
    pg.destroy()
    assert not home.exists()
    assert list(pg.data_dir.iterdir()) == []


def test_waiter_gets_new_cluster_after_destroy(
    current_user: Person, pg: EmbeddedPostgres, processes: list[subprocess.Popen[str]]
) -> None:
    home = open_home(pg).path
    assert pg.stop()
    with (home / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        processes.append(current_user.run("server_user.py", pg.data_dir))
        waiting = psutil.Process(processes[0].pid)
        eventually(lambda: str(home / "lock") in [file.path for file in waiting.open_files()])
        for path in pg.data_dir.iterdir():
            if path != home:
                path.unlink()
        shutil.rmtree(home)
    assert read_line(processes[0]).startswith("postgresql://")
    assert release_server(processes[0]) == "stopped"


async def test_settings(server: EmbeddedPostgres) -> None:
    async with connect_superuser(server) as connection:
        names = ["jit", "listen_addresses", "random_page_cost", "TimeZone", "max_connections"]
        names += ["shared_buffers", "fsync", "server_encoding", "password_encryption"]
        found = {n: await connection.fetchval("select current_setting($1)", n) for n in names}
        locale = await connection.fetchrow(
            "select datlocprovider::text, datlocale from pg_database where datname = 'hansei'"
        )
    assert found == {
        "jit": "off",
        "listen_addresses": "",
        "random_page_cost": "1.1",
        "TimeZone": "UTC",
        "max_connections": "200",
        "shared_buffers": "256MB",
        "fsync": "off",  # asked for by the fixture
        "server_encoding": "UTF8",
        "password_encryption": "scram-sha-256",
    }
    assert tuple(locale) == ("b", "C.UTF-8")


async def test_url_overrides_environment(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "6543")
    monkeypatch.setenv("PGHOST", "db.example.org")
    async with connect_superuser(server) as connection:
        assert await connection.fetchval("select 1") == 1


def test_url_works_with_psql(server: EmbeddedPostgres) -> None:
    said = subprocess.run(
        [find_binaries(None) / "psql", server.url("hansei_app"), "-Atc", "select current_user"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "hansei_app\n"
