"""People who run our programs, and the processes they leave."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from memory_api.embedded.data_directory import (
    ClusterDirectory,
    default_socket_dir,
    open_cluster_directory,
)
from tests.support.paths import ROOT

PROGRAMS = ROOT / "tests/embedded/programs"
PATIENCE = 30  # seconds that a thing may take which normally takes none


def free_port() -> int:
    """A port of 127.0.0.1 that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Person:
    """Somebody who runs our programs: an account and an interpreter it can use."""

    uid: int
    gid: int
    python: str

    def run(
        self, program: str, *arguments: object, pass_fds: Sequence[int] = (), **env: str
    ) -> subprocess.Popen[str]:
        us = os.geteuid() == self.uid
        path = f"{ROOT}{os.pathsep}{ROOT / 'apps'}{os.pathsep}{sysconfig.get_paths()['purelib']}"
        return subprocess.Popen(
            [self.python, str(PROGRAMS / program), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, **env},
            user=None if us else self.uid,
            group=None if us else self.gid,
            extra_groups=None if us else [],
        )


def normal_person() -> Person:
    """An unprivileged person, when we are root and it can run Python and read the code."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    found = pwd.getpwnam("nobody")
    imports = "import psutil, memory_api.embedded.server"
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        person = Person(found.pw_uid, found.pw_gid, python)
        with suppress(OSError), tempfile.NamedTemporaryFile("w", suffix=".py") as probe:
            probe.write(imports)
            probe.flush()
            Path(probe.name).chmod(0o644)
            process = person.run(probe.name)
            process.communicate()
            if process.returncode == 0:
                return person
    pytest.skip("no interpreter here that an unprivileged user can run this code with")


def remove(folder: Path) -> None:
    data_dir = folder / "data"
    homes = [data_dir / "postgres"]
    if (data_dir / "postgres-home").exists():
        homes.append(open_cluster_directory(data_dir).path)
    for process in psutil.process_iter(["cmdline"]):
        if any(str(home / "data") in (process.info["cmdline"] or ()) for home in homes):
            process.send_signal(signal.SIGQUIT)
    for home in homes:
        eventually(lambda home=home: not postmasters(home))
        with suppress(OSError):
            default_socket_dir(ClusterDirectory(home, None)).rmdir()
        shutil.rmtree(home, ignore_errors=True)
    shutil.rmtree(folder)


def postmasters(home: Path) -> list[int]:
    """Live server processes of one cluster, without what they have just forked."""
    found: dict[int, int] = {}
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and str(home / "data") in process.cmdline():
                found[process.pid] = process.ppid()
    return [pid for pid, parent in found.items() if parent not in found]


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until it holds; the limit is there to end a broken test, not to measure."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
