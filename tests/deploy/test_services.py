"""The services of docker-compose.yml as they are written there (command, environment, user, health
check), run without Docker against a server that deploy/init.sql has prepared."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import asyncpg
import httpx2
import psutil
import pytest

from memory_api.embedded.data_directory import SUPERUSER
from memory_api.embedded.server import EmbeddedPostgres
from tests.deploy.conftest import DATABASE, free_port
from tests.support.compose_services import Machine, image

PATIENCE = 60
TRACE = {
    "events": [
        {"event_type": "tool_call", "tool_name": "query", "content": "select * from orders"},
        {"event_type": "error_event", "content": "Query timeout after 30 seconds"},
    ],
    "outcome": "failure",
    "task_description": "Count the orders",
}


def eventually(what: Callable[[], object], *processes: subprocess.Popen[str]) -> None:
    """Wait until `what` is true; the processes must go on running."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        for process in processes:
            assert process.poll() is None, f"{process.args} ended with {process.returncode}"
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.2)


def assert_leaves(process: subprocess.Popen[str]) -> None:
    """As `docker stop` asks; uvicorn ends by the signal once it has drained."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) in (0, -signal.SIGTERM)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
async def superuser(cluster: tuple[EmbeddedPostgres, str]) -> Any:
    connection = await asyncpg.connect(cluster[0].url(SUPERUSER, DATABASE))
    yield connection
    await connection.close()


@pytest.fixture(scope="module")
def migrated(machine: Machine) -> None:
    status, said = machine.run("migrate")
    assert status == 0, said + machine.log.read_text()


@pytest.fixture(scope="module")
def api(machine: Machine, migrated: None) -> Iterator[subprocess.Popen[str]]:
    process = machine.start("api")
    eventually(lambda: machine.healthy("api"), process)
    yield process
    end(process)


@pytest.fixture(scope="module")
def key(machine: Machine, migrated: None) -> str:
    """A tenant and its key, made as the head of docker-compose.yml says."""
    status, _ = machine.run("migrate", "tenant", "create", "acme")
    assert status == 0
    status, said = machine.run(
        "migrate", "key", "create", "--tenant", "acme", "--scope", "write", "--json"
    )
    assert status == 0
    return str(json.loads(said)["key"])


@pytest.fixture(scope="module")
def client(machine: Machine, api: object, key: str) -> Iterator[httpx2.Client]:
    url = f"http://127.0.0.1:{machine.instead['8321']}"
    auth = {"Authorization": f"Bearer {key}"}
    with httpx2.Client(base_url=url, headers=auth, timeout=PATIENCE) as opened:
        yield opened


async def test_start_scripts_grant_least_privileges(superuser: Any, migrated: None) -> None:
    rows = await superuser.fetch(
        "select rolname, rolcanlogin, rolcreaterole, rolsuper or rolbypassrls or rolcreatedb more"
        " from pg_roles where rolname like 'hansei%' order by 1"
    )
    assert [tuple(row) for row in rows] == [
        ("hansei_analyst", False, False, False),
        ("hansei_app", True, False, False),
        ("hansei_owner", True, True, False),
        ("hansei_worker", True, False, False),
    ]
    owners = await superuser.fetch(
        "select distinct relowner::regrole::text from pg_class"
        " where relnamespace = 'public'::regnamespace"
    )
    assert [row[0] for row in owners] == ["hansei_owner"]
    assert not await superuser.fetchval(
        "select has_database_privilege('public', current_database(), 'connect')"
    )


def test_migrate_can_run_again(machine: Machine, migrated: None) -> None:
    assert machine.run("migrate")[0] == 0


def test_health_check_detects_unhealthy_api(machine: Machine, api: object) -> None:
    assert machine.healthy("api")
    nobody = replace(machine, instead=machine.instead | {"8321": "9"})
    assert not nobody.healthy("api")


def test_image_has_health_check(machine: Machine, api: object) -> None:
    assert machine.finish(machine.launch("api", image().healthcheck))[0] == 0


def test_api_role_cannot_create_keys(machine: Machine, key: str) -> None:
    status, said = machine.run("api", "key", "create", "--tenant", "acme", "--scope", "admin")
    assert status == 1
    assert "hsk_" not in said


def test_worker_runs_what_api_accepted(machine: Machine, client: httpx2.Client) -> None:
    answer = client.post(
        "/api/v1/reflections/generate", json=TRACE, headers={"Prefer": "respond-async"}
    )
    assert answer.status_code == 202, answer.text
    run = answer.headers["location"]
    assert client.get(run).json()["state"] == "queued"
    worker = machine.start("worker")
    try:
        eventually(lambda: client.get(run).json()["state"] == "done", worker)
        assert_leaves(worker)
    finally:
        end(worker)
    found = client.post("/api/v1/reflections/query", json={"query_text": "query timeout", "k": 5})
    assert found.json()["reflections"]


def test_processes_run_as_the_images_user(machine: Machine, api: subprocess.Popen[str]) -> None:
    if machine.uid is None:
        pytest.skip("not root, or the image's user cannot run this interpreter")
    process = psutil.Process(api.pid)
    assert set(process.uids()) == {image().uid}
    assert set(process.gids()) == {image().gid}


async def test_new_password_applies_after_next_migrate(machine: Machine, migrated: None) -> None:
    changed = replace(machine, variables=machine.variables | {"HANSEI_APP_PASSWORD": "app1"})
    assert changed.run("migrate")[0] == 0
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(machine.environment("api")["DATABASE_URL"])
    second = replace(changed, instead=machine.instead | {"8321": str(free_port())})
    process = second.start("api")
    try:
        eventually(lambda: second.healthy("api"), process)
        assert_leaves(process)
    finally:
        end(process)
    assert machine.run("migrate")[0] == 0
