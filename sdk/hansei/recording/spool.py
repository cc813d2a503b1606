"""Stores recorded traces until they are sent: on disk, or in memory if no folder is writable.

Each process has a folder of its own and holds its lock while it lives. A trace is one file: `.open`
while the agent runs, `.ready` when it has ended. A line is `T` and fields of the trace as JSON,
`E` and an event, or `R` and why the service refused it. A process that sends adopts the folders of
processes that have ended.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Protocol
from uuid import uuid4

MAX_DISK_BYTES = 512 * 1024 * 1024
"""Traces of one process that are not sent yet. More is not recorded."""
MAX_MEMORY_BYTES = 64 * 1024 * 1024
INTERRUPTED = 'T{"metadata":{"interrupted":"The process ended before the agent run."}}\n'
REJECTED_FOLDER = "rejected"
UNUSED_SECONDS = 3600.0
_LOCK = ".lock"


class Spool(Protocol):
    """All methods may raise `OSError`. One thread writes, one reads."""

    def append(self, name: str, text: str) -> None:
        """Add lines to a trace, all or none."""
        ...

    def finish(self, name: str) -> None:
        """The trace has all its lines."""
        ...

    def list_ready(self) -> list[str]:
        """Traces to send, oldest first."""
        ...

    def read(self, name: str) -> str: ...

    def remove(self, name: str) -> None: ...

    def count_ready(self) -> int: ...

    def reject(self, name: str, reason: str) -> None:
        """The service refuses the trace: store it where it is not sent again, if possible."""
        ...

    def adopt(self) -> None:
        """Take over the traces of processes that have ended."""
        ...

    def leave(self) -> None:
        """In a forked child: let go of the parent's spool without a change."""
        ...

    def close(self) -> None:
        """Let other processes adopt what was not sent."""
        ...


class MemorySpool:
    """Traces in memory. They are lost when the process ends."""

    def __init__(self) -> None:
        self._open: dict[str, list[str]] = {}
        self._ready: dict[str, str] = {}
        self._size = 0

    def append(self, name: str, text: str) -> None:
        if self._size + len(text) > MAX_MEMORY_BYTES:
            raise OSError(errno.ENOSPC, "The buffer is full.")
        self._open.setdefault(name, []).append(text)
        self._size += len(text)

    def finish(self, name: str) -> None:
        self._ready[name] = "".join(self._open.pop(name, []))

    def list_ready(self) -> list[str]:
        return list(self._ready)

    def read(self, name: str) -> str:
        return self._ready[name]

    def remove(self, name: str) -> None:
        self._size -= len(self._ready.pop(name, ""))

    def count_ready(self) -> int:
        return len(self._ready)

    def reject(self, name: str, reason: str) -> None:
        self.remove(name)

    def adopt(self) -> None:
        """Nothing outlives a process here."""

    def leave(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""


class DiskSpool:
    """Traces as files below `folder`, readable by this user only."""

    def __init__(self, folder: Path) -> None:
        """Raises `OSError` if the folder cannot be written."""
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(folder)
        name = f"{os.getpid()}-{uuid4().hex[:8]}"
        unlocked = folder / f".{name}"  # hidden from other processes until it is locked
        unlocked.mkdir(mode=0o700)
        lock = _take_lock(unlocked)
        self._own = unlocked.rename(folder / name)
        self._locks = {self._own: lock}
        """The folders whose traces this process sends."""
        self._size = 0
        self.adopt()

    def append(self, name: str, text: str) -> None:
        data = text.encode()
        if self._size + len(data) > MAX_DISK_BYTES:
            raise OSError(errno.ENOSPC, "The spool folder is full.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        descriptor = os.open(self._own / f"{name}.open", flags, 0o600)
        try:
            before = os.fstat(descriptor).st_size
            try:
                written = os.write(descriptor, data)
                if written < len(data):
                    raise OSError(errno.ENOSPC, "The disk is full.")
            except OSError:
                os.ftruncate(descriptor, before)  # no half-written line
                raise
        finally:
            os.close(descriptor)
        self._size += len(data)

    def finish(self, name: str) -> None:
        os.replace(self._own / f"{name}.open", self._own / f"{name}.ready")

    def list_ready(self) -> list[str]:
        found = [path for folder in self._locks for path in folder.glob("*.ready")]
        dated = sorted((path.stat().st_mtime_ns, str(path)) for path in found)
        return [path for _, path in dated]

    def read(self, name: str) -> str:
        return Path(name).read_text(encoding="utf-8", errors="replace")

    def remove(self, name: str) -> None:
        path = Path(name)
        self._release(path, path.stat().st_size)
        path.unlink()
        self._drop_if_empty(path.parent)

    def reject(self, name: str, reason: str) -> None:
        target = self._folder / REJECTED_FOLDER
        target.mkdir(mode=0o700, exist_ok=True)
        path = Path(name)
        self._release(path, path.stat().st_size)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"R{json.dumps(reason)}\n")
        os.replace(path, target / path.name)
        self._drop_if_empty(path.parent)

    def restore(self, path: Path) -> None:
        """Send a rejected trace again."""
        os.replace(path, self._own / path.name)

    def count_ready(self) -> int:
        return sum(1 for folder in self._locks for _ in folder.glob("*.ready"))

    def adopt(self) -> None:
        for other in _other_folders(self._folder):
            if other not in self._locks:
                self._adopt(other)

    def leave(self) -> None:
        for lock in self._locks.values():
            _release_lock(lock)  # the parent's descriptor still holds the lock
        self._locks = {}

    def close(self) -> None:
        if _is_empty(self._own):
            shutil.rmtree(self._own, ignore_errors=True)
        self.leave()

    def _release(self, path: Path, size: int) -> None:
        if path.parent == self._own:
            self._size -= size

    def _adopt(self, folder: Path) -> None:
        """Take over the traces of a process that has ended; do nothing if it runs."""
        with suppress(OSError):
            self._locks[folder] = _take_lock(folder)
            for path in folder.glob("*.open"):
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n" + INTERRUPTED)  # the last line may be cut
                path.replace(path.with_suffix(".ready"))
            self._drop_if_empty(folder)

    def _drop_if_empty(self, folder: Path) -> None:
        if folder != self._own and _is_empty(folder):
            shutil.rmtree(folder, ignore_errors=True)
            _release_lock(self._locks.pop(folder))


@dataclass(frozen=True)
class SpoolFile:
    """A trace in a spool. `state` is `recording`, `waiting` or `refused`; `reason` is why the
    service refused it.
    """

    path: Path
    id: str
    state: str
    changed_at: str
    task: str | None
    reason: str | None

    def to_json(self) -> dict[str, str | None]:
        values = {name: getattr(self, name) for name in ("id", "state", "changed_at", "task")}
        return {**values, "reason": self.reason, "path": str(self.path)}


def list_files(folder: Path) -> list[SpoolFile]:
    """The traces of all processes, oldest first. Changes nothing."""
    found = [_describe(path) for path in folder.glob("*/*") if path.suffix in _STATES]
    return sorted((file for file in found if file), key=lambda file: file.changed_at)


_STATES = {".open": "recording", ".ready": "waiting"}


def _describe(path: Path) -> SpoolFile | None:
    """None if the trace was sent in the meantime."""
    try:
        changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return None
    task = reason = None
    for line in lines:
        with suppress(ValueError):
            if line.startswith("T"):
                task = json.loads(line[1:]).get("task_description", task)
            elif line.startswith("R"):
                reason = json.loads(line[1:])
    is_refused = path.parent.name == REJECTED_FOLDER
    state = "refused" if is_refused else _STATES[path.suffix]
    return SpoolFile(path, path.stem, state, changed_at, task, reason if is_refused else None)


def open_spool(folder: Path) -> DiskSpool | MemorySpool:
    """The spool of this process in `folder`, otherwise in memory."""
    try:
        return DiskSpool(folder)
    except OSError:
        return MemorySpool()


def spool_folder(url: str, api_key: str | None, root: str | os.PathLike[str] | None) -> Path:
    """The folder of the traces for this service and key. Another key may belong to another tenant
    and never sends them. `root` defaults to HANSEI_SPOOL_DIR, then to the state folder of the user.
    """
    chosen = root or os.environ.get("HANSEI_SPOOL_DIR")
    if chosen:
        base = Path(chosen)
    else:
        state = os.environ.get("XDG_STATE_HOME")
        base = (Path(state) if state else _home() / ".local" / "state") / "hansei" / "spool"
    return base / sha256(f"{url}\0{api_key or ''}".encode()).hexdigest()[:16]


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # no HOME and no user entry, as in some containers
        return Path(tempfile.gettempdir()) / f"hansei-{uuid4().hex}"


def _require_own(folder: Path) -> None:
    """Raises `OSError` if another user could have prepared the folder. In a folder that all may
    write, a link of theirs could lead to another folder of this user.
    """
    if sys.platform == "win32":
        return
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "Another user could have prepared the spool folder.")


def _is_empty(folder: Path) -> bool:
    return all(path.name == _LOCK for path in folder.iterdir())


def _other_folders(folder: Path) -> Iterator[Path]:
    for other in folder.iterdir():
        if other.name != REJECTED_FOLDER and not other.name.startswith(".") and other.is_dir():
            yield other


if sys.platform == "win32":

    def _take_lock(folder: Path) -> int:
        """Windows cannot rename a folder with an open file, so nothing holds it there: a folder
        without changes for an hour is free. Raises `OSError` if it may be in use.
        """
        is_recent = time.time() - folder.stat().st_mtime < UNUSED_SECONDS
        if is_recent and not _is_empty(folder):
            raise PermissionError(errno.EACCES, "The folder may be in use.")
        return -1

    def _release_lock(lock: int) -> None:
        """Nothing is held."""

else:
    import fcntl

    def _take_lock(folder: Path) -> int:
        """The descriptor that holds a folder's lock. Raises `OSError` if a process holds it."""
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _release_lock(lock: int) -> None:
        os.close(lock)
