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

from apps.memory_api.embedded.postgres import EmbeddedPostgres
from apps.memory_api.embedded.provision import provision
from tests.embedded.processes import Person, normal_person, remove


@pytest.fixture(scope="session")
def me() -> Person:
    return Person(os.geteuid(), os.getegid(), sys.executable)


@pytest.fixture(scope="session")
def somebody() -> Person:
    return normal_person()


@pytest.fixture(params=["me", "somebody"])
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
def folder(new_folder: Callable[[Person], Path], me: Person) -> Path:
    return new_folder(me)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Put what you start here: it is killed at the end."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def server(me: Person) -> Iterator[EmbeddedPostgres]:
    """One provisioned server for all tests that only talk to it."""
    folder = Path(tempfile.mkdtemp(prefix="hansei-test-"))
    pg = EmbeddedPostgres(folder / "data", conf={"fsync": "off"}).start()
    asyncio.run(provision(pg))
    yield pg
    pg.destroy()
    shutil.rmtree(folder)
