"""A backup that is restored elsewhere works as the original did; a standby serves reads."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from memory_api.core.migrations import upgrade
from memory_api.embedded.binaries import find_binaries, launch
from memory_api.embedded.data_directory import ServerAccount
from memory_api.embedded.provisioning import provision_database
from tests.support.fault_workload import Census, Sender, census, traces
from tests.support.installation import Installation, Tenant, until


def run_program(name: str, *arguments: str | Path) -> None:
    done = subprocess.run(
        [find_binaries(None) / name, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def elsewhere() -> Iterator[Installation]:
    """Another server with the roles and an empty database."""
    folder = Path(tempfile.mkdtemp(prefix="hansei-restored-"))
    made = Installation(folder)
    try:
        made.pg.start()
        asyncio.run(provision_database(made.pg))
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


def ask(installation: Installation, tenant: Tenant, path: str, body: object) -> httpx2.Response:
    url = f"{installation.url}/api/v1{path}"
    headers = {"Authorization": f"Bearer {tenant.key}"}
    return httpx2.post(url, json=body, headers=headers, timeout=30)


def search(installation: Installation, tenant: Tenant) -> list[tuple[str, float]]:
    answer = ask(installation, tenant, "/search", {"query_text": "refund of an order", "top_k": 50})
    assert answer.status_code == 200, answer.text
    found = answer.json()["results"]
    assert found
    return [(hit["memory"]["id"], hit["combined_score"]) for hit in found]


def test_restored_dump_goes_on(
    installation: Installation, expected_census: Census, sender: Sender, elsewhere: Installation
) -> None:
    with sender.at_work():
        pass
    installation.await_drained(sender.tenant)
    dump = elsewhere.folder / "hansei.dump"
    run_program("pg_dump", "--format=custom", f"--file={dump}", installation.pg.url("postgres"))
    url = elsewhere.pg.url("postgres")
    owner = elsewhere.pg.url("hansei_owner")
    run_program("psql", owner, "-c", "create role hansei_analyst nologin")
    run_program("pg_restore", "--clean", "--if-exists", "--exit-on-error", f"--dbname={url}", dump)
    asyncio.run(upgrade(elsewhere.pg.url("hansei_owner")))
    elsewhere.run("api")
    elsewhere.run("worker")
    elsewhere.await_ready()
    assert census(elsewhere, sender.tenant) == expected_census
    assert search(elsewhere, sender.tenant) == search(installation, sender.tenant)
    again = traces(sender.advice)[0]
    assert ask(elsewhere, sender.tenant, "/traces", again).json()["duplicate"] is True
    new = again | {"external_id": "after the restore", "task_description": "Close the ledger"}
    assert ask(elsewhere, sender.tenant, "/traces?reflect=always", new).status_code == 201
    elsewhere.await_drained(sender.tenant)
    done = census(elsewhere, sender.tenant)["runs", "reflect done"]
    assert done[0] == expected_census["runs", "reflect done"][0] + 1


@contextmanager
def standby(installation: Installation) -> Iterator[str]:
    """A streaming replica of the server. Yields the URL of the app role there."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hansei-standby-") as name:
        folder, owner = Path(name), installation.data_folder().stat()
        account = ServerAccount(owner.st_uid, owner.st_gid) if os.geteuid() == 0 else None
        copy = folder / "data"
        url = installation.pg.url("postgres")
        options = (f"--pgdata={copy}", "--write-recovery-conf", "--checkpoint=fast")
        run_program("pg_basebackup", f"--dbname={url}", *options)
        for path in (folder, copy, *copy.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)
        programs = find_binaries(account)
        settings = installation.data_folder().parent / "postgresql.conf"
        command = [programs / "postgres", "-D", copy, "-c", f"config_file={settings}"]
        command += ["-c", f"unix_socket_directories={folder}", "-c", f"data_directory={copy}"]
        with (folder / "log").open("wb") as log:
            process = launch(command, account, output=log)
        try:
            password = installation.pg.password("hansei_app")
            yield f"postgresql://hansei_app:{password}@/hansei?host={folder}&port=5432"
        finally:
            process.send_signal(signal.SIGINT)  # ends the connections
            process.wait()


def test_standby_serves_reads(installation: Installation, sender: Sender) -> None:
    """An API process on a standby answers what writes nothing, and refuses the rest."""
    with sender.at_work():
        pass
    installation.await_drained(sender.tenant)
    expected = search(installation, sender.tenant)
    headers = {"Authorization": f"Bearer {sender.tenant.key}"}
    with standby(installation) as url:
        installation.kill("api")
        installation.run("api", {"DATABASE_URL": url})
        try:
            installation.await_ready()
            until(lambda: search(installation, sender.tenant) == expected, "the replay")
            page = httpx2.get(f"{installation.url}/api/v1/traces", headers=headers)
            assert len(page.json()["items"]) == len(traces(sender.advice))
            refused = ask(installation, sender.tenant, "/traces", traces(sender.advice)[0])
            assert refused.status_code == 503, refused.text
            render = ask(installation, sender.tenant, "/playbooks/desk/render", {})
            assert render.status_code == 503, render.text
        finally:
            installation.kill("api")
            installation.run("api", {})
            installation.await_ready()
