"""The disk of the database is full for a while: writes are refused, reads are answered, readiness
says so, and nothing is lost.

The tables are in a tablespace on a small file system, which a file fills. The write-ahead log is
elsewhere: without it PostgreSQL stops, which `test_outages.py` covers.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.fault_workload import Census, Sender, assert_same_census
from tests.support.installation import Installation, Tenant, until

SIZE_MB = 256


@pytest.fixture
def small_disk(installation: Installation) -> Iterator[Path]:
    """A file system of `SIZE_MB` with all tables on it."""
    folder = Path("/var/tmp") / f"hansei-small-disk-{os.getpid()}"
    folder.mkdir(mode=0o755)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0755", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("a file system of its own needs the right to mount one")
    try:
        tables = folder / "tables"
        tables.mkdir(mode=0o700)
        owner = installation.data_folder().stat()
        os.chown(tables, owner.st_uid, owner.st_gid)
        installation.rows(f"create tablespace small location '{tables}'")
        move_tables(installation, "small")
        yield folder
        (folder / "ballast").unlink(missing_ok=True)
        move_tables(installation, "pg_default")
        installation.rows("drop tablespace small")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def move_tables(installation: Installation, tablespace: str) -> None:
    """Move the database. Nobody may be connected to it."""
    for name in ("api", "worker"):
        installation.kill(name)
    installation.move_database(tablespace)
    for name in ("api", "worker"):
        installation.run(name)
    installation.await_ready()


def fill(folder: Path) -> None:
    """Fill the file system to the last block."""
    with (folder / "ballast").open("ab", buffering=0) as file:
        size = 1024 * 1024
        while size >= 512:
            try:
                file.write(b"\0" * size)
            except OSError:
                size //= 2


def test_full_disk_loses_nothing(
    installation: Installation, expected_census: Census, sender: Sender, small_disk: Path
) -> None:
    writer = installation.tenant()  # with a full disk, no tenant can be created
    with sender.at_work():
        installation.await_step(sender.tenant, "evaluate")
        try:
            await_refused_writes(installation, writer, small_disk)
            headers = {"Authorization": f"Bearer {sender.tenant.key}"}
            url = f"{installation.url}/api/v1/playbooks/desk"
            assert httpx2.get(url, headers=headers).status_code == 200
        finally:
            (small_disk / "ballast").unlink()
    installation.await_ready()
    assert_same_census(installation, sender, expected_census)


def await_refused_writes(installation: Installation, tenant: Tenant, folder: Path) -> None:
    """Until writes are refused and readiness knows the cause.

    PostgreSQL gives blocks back at any time: a vacuum truncates a table, a large sort ends. So the
    disk is filled again each time.
    """
    numbers = itertools.count()

    def is_known() -> bool:
        fill(folder)
        write_until_refused(installation, tenant, numbers)
        answer = installation.ready()
        if answer.status_code != 503:
            return False
        database = {"status": "unavailable", "error": "DiskFull"}
        assert answer.json()["database"] == database, answer.text
        return True

    until(is_known, "the news of it")


def write_until_refused(installation: Installation, tenant: Tenant, numbers: Iterator[int]) -> None:
    """Pages with free space take some more rows."""
    for n in itertools.islice(numbers, 1_000):
        answer = httpx2.post(
            f"{installation.url}/api/v1/traces?reflect=never",
            json={"state": "open", "query": os.urandom(4_000).hex(), "external_id": f"{n}"},
            headers={"Authorization": f"Bearer {tenant.key}"},
            timeout=30,
        )
        if answer.status_code == 503:
            assert answer.headers["Retry-After"]
            return
        assert answer.status_code == 201, answer.text
    raise AssertionError("the disk was never full")
