"""`hansei up` ends after Ctrl-C while it starts, and with one line for a wrong setting. test_up.py
interrupts it at work."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx2
import psutil
import pytest

from memory_api.commands.api_processes import API_DRAIN_SECONDS
from memory_api.commands.processes import DRAIN_SECONDS
from memory_api.commands.up import WORKER_DRAIN_SECONDS
from tests.e2e.conftest import PATIENCE, Home, free_port, until
from tests.support.cases import each_case
from tests.support.server_command import run_command_here

WRONG = [
    ({"HANSEI_LLM_PROVIDER": "openai"}, "HANSEI_OPENAI_API_KEY"),
    (
        {"HANSEI_LLM_PROVIDER": "azure", "HANSEI_LLM_MODEL": "m", "HANSEI_AZURE_API_KEY": "k"},
        "HANSEI_AZURE_ENDPOINT",
    ),
    (
        {"HANSEI_LLM_PROVIDER": "azure", "HANSEI_AZURE_API_KEY": "k"},
        "HANSEI_LLM_MODEL",
    ),
    (
        {"HANSEI_LLM_PROVIDER": "bedrock", "HANSEI_LLM_MODEL": "us.anthropic.claude"},
        "hansei-server[bedrock]",
    ),
    (
        {"HANSEI_BUDGET_WEBHOOK_URL": "https://example.com"},
        "HANSEI_BUDGET_WEBHOOK_SECRET",
    ),
]
OF_CHILDREN = {"HANSEI_EVALUATORS": "nobody"}
"""A setting of the API and the worker."""
INTERRUPTIONS = [
    ("database", signal.SIGINT),
    ("tables", signal.SIGTERM),
    ("children", signal.SIGTERM),
]
"""Each phase with one of the two signals; both have the same handler."""
if os.environ.get("HANSEI_FAULTS"):
    INTERRUPTIONS += [(p, signal.SIGTERM + signal.SIGINT - n) for p, n in INTERRUPTIONS]


@each_case(
    ("command", "extra", "said"),
    [
        *((command, *wrong) for command in ("up", "serve", "worker") for wrong in WRONG),
        ("serve --processes 1", OF_CHILDREN, "HANSEI_EVALUATORS"),
        ("worker", OF_CHILDREN, "HANSEI_EVALUATORS"),
    ],
)
def test_wrong_setting_ends_with_one_line_and_status_2(
    tmp_path: Path, command: str, extra: dict[str, str], said: str
) -> None:
    env = {"HOME": str(tmp_path), "HANSEI_DATA_DIR": str(tmp_path / "data"), **extra}
    port = [] if command == "worker" else ["--port", str(free_port())]
    status, _, stderr = run_command_here((*command.split(), *port), env)
    assert status == 2, stderr
    assert stderr.startswith("hansei: ")
    assert said in stderr
    assert len(stderr.strip().splitlines()) == 1


def test_wrong_setting_of_a_child_ends_up_with_one_line(home: Home) -> None:
    home.extra = OF_CHILDREN
    done = home.run("up", "--port", str(free_port()), capture_output=True)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("hansei: HANSEI_EVALUATORS")


@pytest.mark.parametrize(("phase", "number"), INTERRUPTIONS)
def test_interrupted_while_it_starts(home: Home, phase: str, number: signal.Signals) -> None:
    process = home.start("up", "--port", str(free_port()))
    try:
        until(lambda: process.poll() is not None or has_begun(process.pid, phase), phase)
        process.send_signal(number)
        process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            assert process.stdout.read() == "", "the API had not answered"
            process.stdout.close()
    assert "Traceback" not in home.log.read_text()


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_two_signals_at_once_leave_no_database(home: Home, processes: int, pause: float) -> None:
    port = free_port()
    assert home.run("migrate").returncode == 0
    process = home.start("serve", "--port", str(port), "--processes", str(processes))
    try:
        until(lambda: _answers(port), "the API answers")
        server = next(
            child for child in psutil.Process(process.pid).children() if child.name() == "postgres"
        )
        process.send_signal(signal.SIGTERM)
        time.sleep(pause)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
    assert not server.is_running(), "the database has stopped before the command ended"


def _answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx2.TransportError:
        return False


def test_time_limits_of_a_stop_leave_the_database_five_of_ten_seconds() -> None:
    """Ctrl-C ends `hansei up` within ten seconds: its children get this long, at the same time."""
    assert max(WORKER_DRAIN_SECONDS, API_DRAIN_SECONDS) <= 5
    assert DRAIN_SECONDS < API_DRAIN_SECONDS


def has_begun(pid: int, phase: str) -> bool:
    """Whether `up` creates the cluster, migrates, or has started the API."""
    words = {"database": ("initdb", "postgres"), "tables": ("prepare",), "children": ("serve",)}
    children = psutil.Process(pid).children(recursive=True)
    found = [part for child in children for part in child.cmdline()]
    return any(part.rpartition("/")[2] == word for part in found for word in words[phase])
