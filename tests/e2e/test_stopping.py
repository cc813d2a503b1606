"""`hansei up` ends soon after Ctrl-C at any moment, and with one line for a wrong setting."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import Home, StartUp, free_port, until
from tests.support.server_command import run_command_here

MAX_STOP_SECONDS = 10.0

WRONG = {
    "no key": ({"HANSEI_LLM_PROVIDER": "openai"}, "HANSEI_OPENAI_API_KEY"),
    "no endpoint": (
        {"HANSEI_LLM_PROVIDER": "azure", "HANSEI_LLM_MODEL": "m", "HANSEI_AZURE_API_KEY": "k"},
        "HANSEI_AZURE_ENDPOINT",
    ),
    "no model": (
        {"HANSEI_LLM_PROVIDER": "azure", "HANSEI_AZURE_API_KEY": "k"},
        "HANSEI_LLM_MODEL",
    ),
    "no extra": (
        {"HANSEI_LLM_PROVIDER": "bedrock", "HANSEI_LLM_MODEL": "us.anthropic.claude"},
        "hansei-server[bedrock]",
    ),
    "no secret": (
        {"HANSEI_BUDGET_WEBHOOK_URL": "https://example.com"},
        "HANSEI_BUDGET_WEBHOOK_SECRET",
    ),
}
FOUND_BY_CHILDREN = {"HANSEI_EVALUATORS": "nobody"}
"""What `up` does not check itself: the API and the worker say it, and `up` ends."""


@pytest.mark.parametrize("command", ["up", "serve", "worker"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_setting_ends_with_one_line_and_status_2(
    tmp_path: Path, command: str, name: str
) -> None:
    extra, said = WRONG[name]
    port = [] if command == "worker" else ["--port", str(free_port())]
    env = {"HOME": str(tmp_path), "HANSEI_DATA_DIR": str(tmp_path / "data"), **extra}
    status, _, stderr = run_command_here((command, *port), env)
    assert status == 2, stderr
    assert stderr.startswith("hansei: ")
    assert said in stderr
    assert len(stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("command", ["up", "serve", "worker"])
def test_process_with_wrong_setting_ends_with_status_2(home: Home, command: str) -> None:
    home.extra = FOUND_BY_CHILDREN
    options = {"worker": [], "serve": ["--processes", "1"], "up": []}[command]
    port = [] if command == "worker" else ["--port", str(free_port())]
    done = home.run(command, *port, *options, capture_output=True)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert "HANSEI_EVALUATORS" in lines[0]
    assert all(line.startswith("hansei: ") for line in lines)
    if command == "up":
        assert "cannot start" in lines[-1]
    else:
        assert len(lines) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("phase", ["database", "tables", "children"])
def test_interrupted_while_it_starts(home: Home, phase: str, number: signal.Signals) -> None:
    process = home.start("up", "--port", str(free_port()))
    try:
        until(lambda: process.poll() is not None or has_begun(process.pid, phase), phase)
        process.send_signal(number)
        process.wait(MAX_STOP_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            assert process.stdout.read() == "", "the API had not answered"
            process.stdout.close()
    assert "Traceback" not in home.log.read_text()


def has_begun(pid: int, phase: str) -> bool:
    """Whether `up` creates the cluster, migrates, or has started the API."""
    words = {"database": ("initdb", "postgres"), "tables": ("prepare",), "children": ("serve",)}
    children = psutil.Process(pid).children(recursive=True)
    found = [part for child in children for part in child.cmdline()]
    return any(part.rpartition("/")[2] == word for part in found for word in words[phase])


def test_interrupted_while_it_works(home: Home, up: StartUp) -> None:
    running = up()
    started_at = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(MAX_STOP_SECONDS) == 0
    assert time.monotonic() - started_at < MAX_STOP_SECONDS
