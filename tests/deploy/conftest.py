"""The service installed as the image installs it, and a PostgreSQL made as compose makes it."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from docker.utils.build import exclude_paths

from memory_api.embedded.binaries import find_binaries
from memory_api.embedded.data_directory import SUPERUSER
from memory_api.embedded.server import EmbeddedPostgres
from tests.support.compose_services import (
    HOME,
    ROOT,
    Machine,
    environment,
    image,
    read_compose,
    stages,
)
from tests.support.processes import free_port

DATABASE = "hansei"
VARIABLES = {
    "HANSEI_POSTGRES_PASSWORD": "super0",
    "HANSEI_OWNER_PASSWORD": "owner0",
    "HANSEI_APP_PASSWORD": "app0",
    "HANSEI_WORKER_PASSWORD": "worker0",
}
"""A filled-in .env."""

LIBRARIES = Path(asyncpg.__file__).parents[1]
"""What requirements.lock installs, here in our own environment."""


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="hansei-deploy-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def context() -> set[str]:
    """The files that .dockerignore lets into the build."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [rule for rule in rules if rule and not rule.startswith("#")]
    return {str(path) for path in exclude_paths(str(ROOT), patterns)}


@pytest.fixture(scope="session")
def site(folder: Path, context: set[str]) -> Path:
    """The project installed by the Dockerfile's own pip line from the files it copies."""
    source, target = folder / "build", folder / "site"
    build = next(stage for stage in stages() if stage.name == "build")
    wanted = [name for copy in build.all("COPY") for name in copy.words[:-1]]
    for name in sorted(context):
        if Path(name).parts[0] in wanted and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    install = next(run.words for run in build.all("RUN") if "--no-build-isolation" in run.words)
    options = install[install.index("install") + 1 :]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--target", str(target), *options],
        cwd=source,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="session")
def cluster() -> Iterator[tuple[EmbeddedPostgres, str]]:
    """An empty server that listens by TCP like the `db` service, at an address that nobody else
    uses, after its start scripts."""
    address = "127.0.0.1"
    if sys.platform == "linux":
        address = ".".join(["127", *(str(random.randint(1, 250)) for _ in range(3))])
    data = Path(tempfile.mkdtemp(prefix="hansei-deploy-"))
    server = EmbeddedPostgres(data, conf={"fsync": "off", "listen_addresses": address}).start()
    try:
        asyncio.run(_create(server.url(SUPERUSER, "postgres")))
        run_start_scripts(server)
        yield server, address
    finally:
        server.destroy()
        shutil.rmtree(data)


async def _create(url: str) -> None:
    connection: asyncpg.Connection = await asyncpg.connect(url)
    await connection.execute(f"create database {DATABASE}")
    await connection.close()


def run_start_scripts(server: EmbeddedPostgres) -> None:
    """What the image's entry point does with /docker-entrypoint-initdb.d on an empty volume."""
    service = read_compose(VARIABLES)["services"]["db"]
    for volume in service["volumes"]:
        source, target, *_ = volume.split(":")
        if not target.startswith("/docker-entrypoint-initdb.d/"):
            continue
        command = [find_binaries(None) / "psql", "-v", "ON_ERROR_STOP=1", "--no-psqlrc"]
        url = server.url(SUPERUSER, service["environment"]["POSTGRES_DB"])
        done = subprocess.run(
            [*command, "-f", ROOT / source, url],
            env=environment(service, VARIABLES),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def machine(site: Path, cluster: tuple[EmbeddedPostgres, str], folder: Path) -> Machine:
    """Everything compose runs, with the database's and the API's address replaced."""
    _, address = cluster
    uid, python = _person()
    return Machine(
        site=site,
        python=python,
        libraries=LIBRARIES,
        uid=uid,
        variables=VARIABLES,
        instead={"@db:": f"@{address}:", "8321": str(free_port()), HOME: str(site)},
        log=folder / "log",
    )


def _person() -> tuple[int | None, str]:
    """The image's user and an interpreter it may run; ourselves where there is none, or we are not
    root."""
    if os.geteuid() != 0:
        return None, sys.executable
    uid, name = image().uid, f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/local/bin/{name}", f"/usr/bin/{name}"):
        try:
            done = subprocess.run(
                [python, "-c", "import asyncpg, uvloop"],
                user=uid,
                group=uid,
                extra_groups=[],
                env={"PYTHONPATH": str(LIBRARIES)},
                cwd="/",
                capture_output=True,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return uid, python
    return None, sys.executable
