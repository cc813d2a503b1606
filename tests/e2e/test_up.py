"""`hansei up`: everything comes up from nothing, survives kill -9 of any part, and leaves when it
is told to."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from memory_api.commands.up import WELCOME
from tests.e2e.conftest import Home, StartUp, Up, is_gone, start_up, until
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples" / "traces.jsonl"
RUN = {
    "outcome": "failure",
    "task_description": "Count the orders",
    "events": [
        {"event_type": "tool_call", "tool_name": "query", "content": "SELECT * FROM orders"},
        {"event_type": "error_event", "content": "Query timeout after 30 seconds"},
    ],
}


def test_first_start_to_reflection_and_search(home: Home, up: StartUp) -> None:
    first = up()
    assert first.told.keys() == {"url", "api_key", "tenant", "worker_metrics_url", "database_url"}
    stored = home.data / "credentials.json"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert json.loads(stored.read_text())["api_key"] == first.told["api_key"]
    with first.client as client:
        assert client.get("/health/ready").json()["status"] == "ok"
        answer = client.post("/api/v1/reflections/generate", json=RUN)
        assert answer.status_code == 200
        assert answer.json()["engine"] == "rules"

    learned = home.run("reflect", str(EXAMPLES), "--json", capture_output=True)
    assert learned.returncode == 0, learned.stderr
    again = home.run("reflect", str(EXAMPLES), capture_output=True)
    assert again.returncode == 0, again.stderr
    assert "All 26 traces are already stored" in again.stdout

    top = home.run("top", "--once", "--json", capture_output=True)
    assert json.loads(top.stdout)["runs"]["evaluate"]["done"] >= 26, top.stdout + top.stderr

    api, worker, database = first.child("serve"), first.child("worker"), first.postmaster()
    assert api.memory_info().rss < 250 * 1024 * 1024
    assert first.interrupt() == 0
    assert all(is_gone(one.pid) for one in (api, worker, database))

    second = up()
    assert second.told["api_key"] == first.told["api_key"]
    assert second.told["url"] != first.told["url"]
    listed = home.run("playbook", "list", capture_output=True)
    assert listed.returncode == 0, listed.stderr
    with second.client as client:
        found = client.post("/api/v1/search", json={"query_text": "query timeout"}).json()
        assert answer.json()["reflection_id"] in {hit["memory"]["id"] for hit in found["results"]}


def test_killing_any_process_loses_nothing(home: Home, up: StartUp) -> None:
    running = up()
    with running.client as client:
        kept = client.post("/api/v1/reflections/generate", json=RUN).json()["reflection_id"]

        def still_there() -> bool:
            return client.get(f"/api/v1/memories/{kept}").status_code == 200

        for victim in (running.child("serve"), running.child("worker"), running.postmaster()):
            victim.kill()
            until(lambda victim=victim: is_gone(victim.pid), "the kill")
            until(still_there, f"recovery from the death of {victim.pid}")
        done = client.post("/api/v1/traces?reflect=always", json=RUN).json()
        until(
            lambda: client.get(f"/api/v1/runs/{done['run_id']}").json()["state"] == "done",
            "a job done by the new worker",
        )

        children = [running.child("serve").pid, running.child("worker").pid]
        database = running.postmaster().pid
        running.process.kill()
        running.process.wait()
        until(lambda: all(is_gone(pid) for pid in [*children, database]), "leaving with the parent")
    again = up()
    with again.client as client:
        assert client.get(f"/api/v1/memories/{kept}").status_code == 200


def test_busy_port_error_names_owner(running: Up) -> None:
    port = running.told["url"].rpartition(":")[2]
    second = running.home.run("up", "--port", port, capture_output=True)
    assert second.returncode == 1
    assert f"Port {port} is in use by pid" in second.stderr
    assert "--port" in second.stderr
    assert "Traceback" not in second.stderr


def test_banner_names_the_playbook_that_its_request_teaches(running: Up) -> None:
    fields = {"url": running.told["url"], "key": running.told["api_key"], "data": ""}
    banner = WELCOME.format(**fields)
    request = re.search(r"-d '(.*)'", banner, re.S)
    shown = re.search(r"`hansei (playbook show \S+ --status all)`", banner)
    assert request, banner
    assert shown, banner
    with running.client as client:
        answer = client.post("/api/v1/reflections/generate", json=json.loads(request[1]))
        assert answer.status_code == 200, answer.text
    command = shown[1].split()
    until(
        lambda: "awaiting confirmation" in running.home.run(*command, capture_output=True).stdout,
        "a bullet that waits",
    )


def test_second_service_of_a_folder_puts_the_address_back(running: Up) -> None:
    home = running.home
    stored = home.data / "credentials.json"
    before = json.loads(stored.read_text())
    second = start_up(home)
    try:
        assert json.loads(stored.read_text())["url"] == second.told["url"] != before["url"]
        assert f"{before['url']} runs with this folder, too" in home.log.read_text()
    finally:
        with second.process:  # closes its pipe
            assert second.interrupt() == 0
    assert json.loads(stored.read_text()) == before
    assert home.run("playbook", "list", capture_output=True).returncode == 0


def test_commands_work_while_server_runs(running: Up) -> None:
    home = running.home
    assert home.run("tenant", "create", "acme", capture_output=True).returncode == 0
    made = home.run(
        "key", "create", "--tenant", "acme", "--scope", "read", "--json", capture_output=True
    )
    key = json.loads(made.stdout)["key"]
    with running.client as client:
        headers = {"Authorization": f"Bearer {key}"}
        assert client.get("/api/v1/memories", headers=headers).status_code == 200
        assert client.post("/api/v1/memories", headers=headers, json={}).status_code == 403
        assert home.run("key", "revoke", key, capture_output=True).returncode == 0
        healthy = home.run("doctor", "--json", capture_output=True)
        until(  # the API caches a key for five seconds
            lambda: client.get("/api/v1/memories", headers=headers).status_code == 401,
            "the end of a revoked key",
        )
    assert healthy.returncode == 0, healthy.stdout
    assert all(one["ok"] for one in json.loads(healthy.stdout))


def test_agent_answers_from_a_collection(running: Up) -> None:
    """The three steps of docs/grace.md, without a model."""
    home = running.home

    def run(*arguments: str) -> str:
        done = home.run(*arguments, capture_output=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("collection", "create", "handbook", "--description", "How to run Hansei")
    run("collection", "add", "handbook", str(ROOT / "docs" / "operations.md"))
    answer = run("agent", "run", "How do I restore a backup?")
    assert "pg_restore" in answer
    assert "Back up and restore" in answer


def nobody_can_run_python() -> bool:
    """Whether root may become `nobody`, and `nobody` reach the interpreter of these tests."""
    if os.geteuid() != 0:
        return False
    try:
        return subprocess.run([sys.executable, "-c", ""], user="nobody").returncode == 0
    except PermissionError:
        return False


@pytest.mark.skipif(not nobody_can_run_python(), reason="`nobody` cannot run this interpreter")
def test_runs_as_unprivileged_user() -> None:
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    shutil.chown(folder, "nobody", pwd.getpwnam("nobody").pw_gid)
    home = Home(folder, user="nobody")
    running = start_up(home)
    try:
        with running.client as client:
            answer = client.post("/api/v1/reflections/generate", json=RUN)
            assert answer.status_code == 200
        owners = {running.postmaster().username(), running.child("serve").username()}
        assert owners == {"nobody"}
    finally:
        with running.process:  # closes its pipe
            assert running.interrupt() == 0
        shutil.rmtree(folder)
