"""Real processes and real servers, cleaned up whatever a test did to them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memory_api.embedded.provisioning import provision_database
from memory_api.embedded.server import EmbeddedPostgres
from tests.support.embedded_server import QUICK
from tests.support.processes import Person, normal_person, remove


@pytest.fixture(scope="session")
def current_user() -> Person:
    return Person(os.geteuid(), os.getegid(), sys.executable)


@pytest.fixture(scope="session")
def other_user() -> Person:
    return normal_person()


@pytest.fixture(params=["current_user", "other_user"])
def person(request: pytest.FixtureRequest) -> Person:
    return request.getfixturevalue(request.param)


@pytest.fixture
def new_folder() -> Iterator[Callable[[Person], Path]]:
    """Makes private (0700) folders; at the end their servers are ended and all files deleted."""
    made: list[Path] = []

    def make(owner: Person) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="hansei-test-"))
        os.chown(folder, owner.uid, owner.gid)
        made.append(folder)
        return folder / "data"

    yield make
    for folder in made:
        remove(folder)


@pytest.fixture
def folder(new_folder: Callable[[Person], Path], current_user: Person) -> Path:
    return new_folder(current_user)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Put what you start here: it is killed at the end."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def server(current_user: Person) -> Iterator[EmbeddedPostgres]:
    """One provisioned server for all tests that only talk to it."""
    folder = Path(tempfile.mkdtemp(prefix="hansei-test-"))
    pg = EmbeddedPostgres(folder / "data", conf=QUICK).start()
    asyncio.run(provision_database(pg))
    yield pg
    pg.destroy()
    shutil.rmtree(folder)


@pytest.fixture
def pg(folder: Path) -> Iterator[EmbeddedPostgres]:
    """A new server that a test may stop or damage."""
    started = EmbeddedPostgres(folder, conf=QUICK).start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def stopped_cluster(current_user: Person) -> Iterator[Path]:
    """The data directory of a server that ran and was stopped. Tests leave it usable."""
    parent = Path(tempfile.mkdtemp(prefix="hansei-test-"))
    with EmbeddedPostgres(parent / "data", conf=QUICK):
        pass
    yield parent / "data"
    remove(parent)
