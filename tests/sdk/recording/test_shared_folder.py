"""A spool in a folder that all users may write, such as /tmp."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hansei.coding_agents.session_store import SessionStore
from hansei.errors import ConfigurationError
from hansei.recording.spool import DiskSpool, MemorySpool, open_spool

INVENTED = 'T{"task_description":"Invented by another user"}\n'


@pytest.fixture
def opened(tmp_path: Path) -> DiskSpool:
    spool = open_spool(tmp_path / "spool")
    assert isinstance(spool, DiskSpool)
    return spool


def own_folder(folder: Path) -> Path:
    (found,) = (path for path in folder.iterdir() if path.name != "rejected")
    return found


def test_link_to_another_folder_is_not_followed(tmp_path: Path) -> None:
    """It led to a folder of the victim, in which empty folders were deleted and locks created."""
    home = tmp_path / "home"
    (home / "empty").mkdir(parents=True)
    (home / "work").mkdir()
    (home / "work" / "notes.open").write_text("mine")
    (tmp_path / "spool").symlink_to(home)
    assert isinstance(open_spool(tmp_path / "spool"), MemorySpool)
    assert sorted(path.name for path in home.rglob("*")) == ["empty", "notes.open", "work"]
    assert (home / "work" / "notes.open").read_text() == "mine"


def test_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert isinstance(open_spool(tmp_path / "spool"), MemorySpool)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_folder_that_others_may_write_is_not_used(tmp_path: Path, mode: int) -> None:
    """Another user added traces there, which were sent with the key of this user."""
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool").chmod(mode)
    assert isinstance(open_spool(tmp_path / "spool"), MemorySpool)
    (tmp_path / "coding-agents").mkdir()
    (tmp_path / "coding-agents").chmod(mode)
    with pytest.raises(ConfigurationError, match="HANSEI_STATE_DIR"):
        SessionStore(tmp_path / "coding-agents")


def test_folder_that_another_user_replaced_is_not_used(tmp_path: Path, opened: DiskSpool) -> None:
    """Who may rename the folder put an own one in its place while the agent ran: its traces were
    sent with the key of this user, and a line was added to the files that its links name.
    """
    secret = tmp_path / "secret"
    secret.write_text("mine\n")
    (tmp_path / "spool").rename(tmp_path / "moved")
    prepared = tmp_path / "spool" / "prepared"
    prepared.mkdir(parents=True)
    (prepared / "a.open").symlink_to(secret)
    (prepared / "b.ready").write_text(INVENTED)
    opened.append("own", "T{}\n")
    opened.finish("own")
    opened.adopt()
    assert [opened.read(name) for name in opened.list_ready()] == ["T{}\n"]
    assert secret.read_text() == "mine\n"
    assert sorted(path.name for path in prepared.iterdir()) == ["a.open", "b.ready"]


def test_entries_that_are_no_files_stop_nothing(tmp_path: Path, opened: DiskSpool) -> None:
    """A link without a target made every look into the spool fail, a named pipe never returned."""
    folder = own_folder(tmp_path / "spool")
    (folder / "a.ready").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "b.ready")
    (folder / "c.ready").mkdir()
    ended = tmp_path / "spool" / "1-ended"
    ended.mkdir()
    (ended / "a.open").symlink_to(tmp_path / "nowhere")
    os.mkfifo(ended / "b.open")
    (ended / "c.open").write_text("T{}\n")
    opened.append("own", "T{}\n")
    opened.finish("own")
    opened.adopt()
    assert [Path(name).name for name in opened.list_ready()] == ["c.ready", "own.ready"]
    assert not (tmp_path / "nowhere").exists()
    for name in opened.list_ready():
        opened.remove(name)
    assert opened.count_ready() == 0


def test_files_are_readable_by_their_user_only(tmp_path: Path, opened: DiskSpool) -> None:
    opened.append("a", "T{}\n")
    found = [path.lstat().st_mode for path in (tmp_path / "spool").rglob("*")]
    assert {mode & 0o077 for mode in found} == {0}
    assert any(stat.S_ISREG(mode) for mode in found)
    opened.close()
