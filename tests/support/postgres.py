"""A real PostgreSQL for the tests: the embedded server, a container where Docker is
(HANSEI_TEST_PG=pg16, pg17 or pg18), or any other server (the URL of its superuser).

Each xdist worker has a database of its own, cloned from a migrated template. Only a container
serves one worker alone.
"""

from __future__ import annotations

import fcntl
import secrets
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import asyncpg

from memory_api.core.migrations import upgrade
from memory_api.embedded.cluster import SETTINGS
from memory_api.embedded.data_directory import EmbeddedPostgresError
from memory_api.embedded.provisioning import provision_database
from memory_api.embedded.server import EmbeddedPostgres

TEMPLATE = "hansei_template"
ROLES = ("postgres", "hansei_owner", "hansei_app", "hansei_worker")
IMAGE = "pgvector/pgvector:0.8.5-{version}-trixie"
FAST = {
    **dict.fromkeys(("fsync", "full_page_writes"), "off"),
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "max_connections": "300",
    "shared_buffers": "256MB",
}
"""Settings of a server whose data nobody needs after a crash of the machine. Commits stay
synchronous: tests kill PostgreSQL, and VACUUM does not mark rows of an asynchronous commit as
visible to all.
"""


@dataclass(frozen=True)
class Server:
    """A running server: `urls` has a format string per role with `{database}` in it."""

    urls: dict[str, str]
    provision: Callable[[Server], Awaitable[None]]

    def url(self, role: str, database: str) -> str:
        return self.urls[role].replace("{database}", database)

    async def run(self, statement: str, database: str = "postgres") -> None:
        """One statement as the superuser."""
        connection = await asyncpg.connect(self.url("postgres", database))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def make_template(self) -> None:
        """The migrated database all others are cloned from. The first caller makes it."""
        await self.provision(self)
        await upgrade(self.url("hansei_owner", TEMPLATE))

    async def clone(self, database: str) -> None:
        await self.drop_database(database)
        await self.create_database(database, f"template {TEMPLATE}")

    async def drop_database(self, name: str) -> None:
        await self.run(f"drop database if exists {name} with (force)")

    async def create_database(self, name: str, options: str = "") -> None:
        """A database as operators create it: no login of another one reaches it."""
        await self.run(f"create database {name} owner hansei_owner {options}")
        await self.run(f"revoke all on database {name} from public")
        await self.run(f"grant connect on database {name} to hansei_app, hansei_worker")


@contextmanager
def once(folder: Path, name: str) -> Iterator[bool]:
    """True for the first process of a test run to come here; the others wait until it is
    through."""
    marker = folder / f"{name}.done"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not marker.exists()
        marker.touch()


@contextmanager
def embedded(folder: Path) -> Iterator[Server]:
    """The embedded server, fast and forgetful (fsync off). The last worker to leave deletes it."""
    server = EmbeddedPostgres(folder / "pg", conf=FAST).start()
    try:

        async def provision_embedded(_: Server) -> None:
            await provision_database(server, TEMPLATE)

        # a password is quoted for a URL, so no brace but ours is in it
        yield Server({role: server.url(role, "{database}") for role in ROLES}, provision_embedded)
    finally:
        try:
            server.destroy()
            (folder / "template.done").unlink(missing_ok=True)  # whoever comes later starts anew
        except EmbeddedPostgresError:  # another worker is still using it
            server.stop()


def docker_answers() -> bool:
    """Whether there is a Docker engine, and not only its client."""
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def container(version: str) -> Iterator[str]:
    """The URL of the superuser of a pgvector container, with those of the embedded server's
    settings that plans depend on."""
    from testcontainers.community.postgres import (  # noqa: PLC0415 - only where Docker is
        PostgresContainer,
    )

    password = secrets.token_urlsafe(16)
    names = ["random_page_cost", "jit", *(["max_notify_queue_pages"] if version != "pg16" else [])]
    conf = FAST | {name: SETTINGS[name] for name in names}
    # /dev/shm for vector indexes, as in docker-compose.yml
    box = PostgresContainer(
        IMAGE.format(version=version), username="postgres", password=password, shm_size="1g"
    )
    box.with_command(["postgres", *(f"--{name}={value}" for name, value in conf.items())])
    with box:
        host = f"{box.get_container_host_ip()}:{box.get_exposed_port(5432)}"
        yield f"postgresql://postgres:{quote(password)}@{host}/postgres"


class OtherServer(Server):
    """A server of the operator. The roles of the service get the password of its superuser."""

    def password(self, role: str) -> str:
        return unquote(urlsplit(self.urls[role]).password or "")


def urls_of_roles(superuser: str) -> dict[str, str]:
    parts = urlsplit(superuser)
    address = f"{parts.password}@{parts.hostname}:{parts.port or 5432}"
    return {role: f"postgresql://{role}:{address}/{{database}}" for role in ROLES}


def open_other_server(superuser: str) -> OtherServer:
    async def provision(server: Server) -> None:
        await server.drop_database(TEMPLATE)
        await provision_database(opened, TEMPLATE)

    opened = OtherServer(urls_of_roles(superuser), provision)
    return opened
