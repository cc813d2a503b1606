"""`hansei up` as a user has it: a real process, an empty home, nothing in the environment."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from memory_api.embedded.server import EmbeddedPostgres
from tests.support.paths import ROOT
from tests.support.processes import free_port

PATIENCE = 90.0
INSTALLED = os.environ.get("HANSEI_TEST_PYTHON")
"""The Python of an installation to test instead of the sources (`make release-check`)."""


@dataclass
class Home:
    """A user with an empty home; commands run there with a bare environment."""

    folder: Path
    user: str | None = None
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.folder / "private" / "data"

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*command), **self.options(), text=True, timeout=PATIENCE, **options
        )

    @property
    def log(self) -> Path:
        return self.folder / "up.log"

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Its standard error goes to a file: a pipe that nobody reads would stop it one day."""
        with self.log.open("a") as log:
            return subprocess.Popen(
                self.argv(*command),
                **self.options(),
                text=True,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def argv(self, *command: str) -> list[str]:
        return [INSTALLED or sys.executable, "-m", "hansei", *command]

    def options(self) -> dict[str, Any]:
        home = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        sources = {"PYTHONPATH": f"{ROOT / 'apps'}:{ROOT / 'sdk'}:{ROOT}"} if not INSTALLED else {}
        env = home | sources | {"HANSEI_DATA_DIR": str(self.data), **self.extra}
        account: dict[str, Any] = {}
        if self.user is not None:
            entry = pwd.getpwnam(self.user)
            account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        return {"cwd": self.folder, "env": env, **account}


@dataclass
class Up:
    """A running `hansei up`."""

    home: Home
    process: subprocess.Popen[str]
    told: dict[str, str]

    @property
    def client(self) -> httpx2.Client:
        auth = {"Authorization": f"Bearer {self.told['api_key']}"}
        return httpx2.Client(base_url=self.told["url"], headers=auth, timeout=30)

    def child(self, command: str) -> psutil.Process:
        """The API (`serve`) or the worker (`worker`)."""
        mine = psutil.Process(self.process.pid).children()
        return next(one for one in mine if command in one.cmdline())

    def postmaster(self) -> psutil.Process:
        pointer = self.home.data / "postgres-home"  # root's cluster lives elsewhere
        own = self.home.data / "postgres"
        folder = Path(pointer.read_text().strip()) if pointer.exists() else own
        pid = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        return psutil.Process(pid)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)


StartUp = Callable[..., Up]


def start_up(home: Home, *options: str) -> Up:
    process = home.start("up", "--json", "--processes", "1", "--port", str(free_port()), *options)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(f"`hansei up` did not come up: {home.log.read_text()}")
    return Up(home, process, json.loads(line))


@contextmanager
def new_home() -> Iterator[Home]:
    """An empty home whose data folder is below a 0700 folder."""
    folder = Path(tempfile.mkdtemp(prefix="hansei-e2e-"))
    (folder / "private").mkdir(mode=0o700)
    made = Home(folder)
    yield made
    EmbeddedPostgres(made.data).destroy()
    shutil.rmtree(folder)


@pytest.fixture
def home() -> Iterator[Home]:
    with new_home() as made:
        yield made


@pytest.fixture(scope="session")
def running() -> Iterator[Up]:
    """A running `hansei up`, shared by tests that neither stop it nor depend on its data."""
    with new_home() as home:
        started = start_up(home)
        yield started
        started.interrupt()
        assert started.process.stdout is not None
        started.process.stdout.close()


@pytest.fixture
def up(home: Home) -> Iterator[StartUp]:
    """Starts `hansei up`, as often as wanted; whatever is left at the end is killed."""
    started: list[Up] = []

    def start(*options: str) -> Up:
        started.append(start_up(home, *options))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.interrupt()
        if one.process.stdout is not None:
            one.process.stdout.close()


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (OSError, httpx2.HTTPError, psutil.Error):
            pass
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen in {PATIENCE:g} s")


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
