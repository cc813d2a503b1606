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
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from hansei.private_folder import PrivateFolder, state_folder

MAX_DISK_BYTES = 512 * 1024 * 1024
"""Traces of one process that are not sent yet. More is not recorded."""
MAX_MEMORY_BYTES = 64 * 1024 * 1024
INTERRUPTED = 'T{"metadata":{"interrupted":"The process ended before the agent run."}}\n'
REJECTED_FOLDER = "rejected"
UNUSED_SECONDS = 3600.0
_LOCK = ".lock"


class MemorySpool:
    """A `DiskSpool` without a disk. Its traces are lost when the process ends."""

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
    """Traces as files below `folder`, readable by this user only. The name of a trace that is ready
    is its path in the folder. One thread writes, one reads. All methods may raise `OSError`.
    """

    def __init__(self, folder: Path) -> None:
        """Raises `OSError` if the folder cannot be written, or if other users can."""
        self._folder = PrivateFolder(folder)
        try:
            self._own = f"{os.getpid()}-{uuid4().hex[:8]}"
            unlocked = f".{self._own}"  # hidden from other processes until it is locked
            self._folder.make(unlocked)
            lock = _take_lock(self._folder, unlocked)
            self._folder.rename(unlocked, self._own)
        except OSError:
            self._folder.close()
            raise
        self._locks = {self._own: lock}
        """The folders whose traces this process sends."""
        self._size = 0
        self.adopt()

    def append(self, name: str, text: str) -> None:
        """Add lines to a trace, all or none."""
        data = text.encode()
        if self._size + len(data) > MAX_DISK_BYTES:
            raise OSError(errno.ENOSPC, "The spool folder is full.")
        self._append(f"{self._own}/{name}.open", data, os.O_CREAT)
        self._size += len(data)

    def _append(self, name: str, data: bytes, flags: int = 0) -> None:
        descriptor = self._folder.open(name, os.O_WRONLY | os.O_APPEND | flags)
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

    def finish(self, name: str) -> None:
        name = f"{self._own}/{name}"
        self._folder.rename(f"{name}.open", f"{name}.ready")

    def list_ready(self) -> list[str]:
        """Traces to send, oldest first."""
        found = [(self._folder.status(name).st_mtime_ns, name) for name in self._ready()]
        return [name for _, name in sorted(found)]

    def _ready(self) -> list[str]:
        return [name for each in self._locks for name in self._folder.files(each, ".ready")]

    def read(self, name: str) -> str:
        with open(self._folder.open(name, os.O_RDONLY), "rb") as file:
            return file.read().decode(errors="replace")

    def remove(self, name: str) -> None:
        self._release(name)
        self._folder.remove(name)
        self._drop_if_empty(name.partition("/")[0])

    def reject(self, name: str, reason: str) -> None:
        """The service refuses the trace: store it where it is not sent again."""
        with suppress(FileExistsError):
            self._folder.make(REJECTED_FOLDER)
        self._release(name)
        self._append(name, f"R{json.dumps(reason)}\n".encode())
        folder, _, file = name.partition("/")
        self._folder.rename(name, f"{REJECTED_FOLDER}/{file}")
        self._drop_if_empty(folder)

    def restore(self, file: SpoolFile) -> None:
        """Send a rejected trace again."""
        name = file.path.name
        self._folder.rename(f"{REJECTED_FOLDER}/{name}", f"{self._own}/{name}")

    def count_ready(self) -> int:
        return len(self._ready())

    def adopt(self) -> None:
        """Take over the traces of processes that have ended."""
        for other in self._folder.folders():
            is_spool = other != REJECTED_FOLDER and not other.startswith(".")
            if is_spool and other not in self._locks:
                self._adopt(other)

    def leave(self) -> None:
        """In a forked child: let go of the parent's spool without a change."""
        for lock in self._locks.values():
            _release_lock(lock)  # the parent's descriptor still holds the lock
        self._locks = {}
        self._folder.close()

    def close(self) -> None:
        """Let other processes adopt what was not sent."""
        if self._own in self._locks and self._is_empty(self._own):
            with suppress(OSError):
                self._folder.remove_folder(self._own)
        self.leave()

    def _release(self, name: str) -> None:
        if name.startswith(f"{self._own}/"):
            self._size -= self._folder.status(name).st_size

    def _adopt(self, folder: str) -> None:
        """Take over the traces of a process that has ended; do nothing if it runs."""
        with suppress(OSError):
            self._locks[folder] = _take_lock(self._folder, folder)
            for name in self._folder.files(folder, ".open"):
                self._append(name, b"\n" + INTERRUPTED.encode())  # the last line may be cut
                self._folder.rename(name, f"{name.removesuffix('.open')}.ready")
            self._drop_if_empty(folder)

    def _is_empty(self, folder: str) -> bool:
        return self._folder.files(folder) in ([], [f"{folder}/{_LOCK}"])

    def _drop_if_empty(self, folder: str) -> None:
        if folder != self._own and self._is_empty(folder):
            with suppress(OSError):
                self._folder.remove_folder(folder)
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
    paths = [path for path in folder.glob("*/*") if path.suffix in _STATES]
    found = [_describe(path) for path in paths if not path.is_symlink() and path.is_file()]
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


Spool = DiskSpool | MemorySpool


def open_spool(folder: Path) -> Spool:
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
    base = Path(chosen) if chosen else _state_folder() / "spool"
    return base / sha256(f"{url}\0{api_key or ''}".encode()).hexdigest()[:16]


def _state_folder() -> Path:
    try:
        return state_folder()
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"hansei-{uuid4().hex}"


if sys.platform == "win32":

    def _take_lock(folder: PrivateFolder, name: str) -> int:
        """Windows cannot rename a folder with an open file, so nothing holds it there: a folder
        without changes for an hour is free. Raises `OSError` if it may be in use.
        """
        is_recent = time.time() - folder.status(name).st_mtime < UNUSED_SECONDS
        if is_recent and folder.files(name):
            raise PermissionError(errno.EACCES, "The folder may be in use.")
        return -1

    def _release_lock(lock: int) -> None:
        """Nothing is held."""

else:
    import fcntl

    def _take_lock(folder: PrivateFolder, name: str) -> int:
        """The descriptor that holds a folder's lock. Raises `OSError` if a process holds it."""
        descriptor = folder.open(f"{name}/{_LOCK}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _release_lock(lock: int) -> None:
        os.close(lock)
