"""A folder whose files no other user of the machine can read, prepare or replace."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def state_folder() -> Path:
    """XDG_STATE_HOME/hansei, by default ~/.local/state/hansei. Raises `RuntimeError` without a home
    folder, as in some containers.
    """
    chosen = os.environ.get("XDG_STATE_HOME")
    return (Path(chosen) if chosen else Path.home() / ".local" / "state") / "hansei"


def require_private(folder: Path) -> None:
    """Raises `OSError` unless this user owns the folder and nobody else may write into it. In a
    folder that all may write, another user may have prepared it, or a link in its place.
    """
    _require_private(folder, folder.lstat())


def _require_private(folder: Path, status: os.stat_result) -> None:
    if sys.platform == "win32":
        return
    others = stat.S_IWGRP | stat.S_IWOTH
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & others:
        message = f"Another user could have prepared the folder {folder}, or can write into it."
        raise PermissionError(errno.EPERM, message)


class PrivateFolder:
    """Reaches files by names relative to the folder that was checked, which is never looked up
    again: a user who can rename it cannot put another one in its place. All methods may raise
    `OSError`.
    """

    def __init__(self, path: Path) -> None:
        """Creates the folder if it does not exist."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._descriptor: int | None = None
        if sys.platform == "win32":
            return
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _require_private(path, os.fstat(self._descriptor))
        except OSError:
            self.close()
            raise

    def _at(self, name: str) -> str:
        return name if self._descriptor is not None else str(self._path / name)

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a file of mode 0600. Never follows a link, and never waits."""
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        return os.open(self._at(name), flags, 0o600, dir_fd=self._descriptor)

    def status(self, name: str) -> os.stat_result:
        return os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False)

    def files(self, name: str, suffix: str = "") -> list[str]:
        """The names of the regular files in a folder below."""
        found = [f"{name}/{file}" for file in self._list(name) if file.endswith(suffix)]
        return [file for file in found if self._has_type(file, stat.S_ISREG)]

    def folders(self) -> list[str]:
        return [name for name in self._list("") if self._has_type(name, stat.S_ISDIR)]

    def _list(self, name: str) -> list[str]:
        if sys.platform == "win32":
            return os.listdir(self._path / name)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        descriptor = os.open(name or ".", flags, dir_fd=self._descriptor)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def _has_type(self, name: str, is_type: Callable[[int], bool]) -> bool:
        with suppress(FileNotFoundError):
            return is_type(self.status(name).st_mode)
        return False

    def make(self, name: str) -> None:
        os.mkdir(self._at(name), 0o700, dir_fd=self._descriptor)

    def rename(self, name: str, target: str) -> None:
        """Replaces `target`."""
        at = self._descriptor
        os.replace(self._at(name), self._at(target), src_dir_fd=at, dst_dir_fd=at)

    def remove(self, name: str) -> None:
        os.unlink(self._at(name), dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Remove a folder below with its files."""
        for file in self._list(name):
            self.remove(f"{name}/{file}")
        os.rmdir(self._at(name), dir_fd=self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
