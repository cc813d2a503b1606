"""A spool in a folder that all users may write, such as /tmp."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hansei.recording.spool import DiskSpool, MemorySpool, open_spool


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


def test_files_are_readable_by_their_user_only(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "spool")
    assert isinstance(spool, DiskSpool)
    spool.append("a", "T{}\n")
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "spool").rglob("*")}
    assert modes == {0}
    spool.close()
