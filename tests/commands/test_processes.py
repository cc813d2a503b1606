"""`hansei serve`, `worker` and `up` with a wrong setting end with status 2 and name the setting."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from memory_api.commands.api_processes import (
    MAX_DEFAULT_PROCESSES,
    MEMORY_PER_PROCESS,
    default_process_count,
)
from tests.conftest import Database
from tests.support.paths import ROOT
from tests.support.processes import PATIENCE, eventually, free_port
from tests.support.server_command import run_command, run_command_here

WRONG = {
    "HANSEI_WORKER_CONCURRENCY": ("many", "HANSEI_WORKER_CONCURRENCY must be a valid integer"),
    "HANSEI_EMBEDDING_PROVIDER": ("openai", "OPENAI_API_KEY"),
    "HANSEI_LLM_PROVIDER": ("openai", "HANSEI_LLM_PROVIDER=openai needs an API key."),
    "HANSEI_DATABASE_URL": ("nonsense", "A database URL in the configuration is not valid."),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("command", ["serve", "worker"])
async def test_wrong_setting_is_one_line_and_status_2(
    command: str, name: str, database: Database
) -> None:
    port = ("--processes", "1", "--port", str(free_port())) if command == "serve" else ()
    value, expected = WRONG[name]
    env = {"HANSEI_DATABASE_URL": database.url("hansei_app")} | {name: value}
    status, _, err = await run_command((command, *port), env)
    assert status == 2, err
    assert expected in err
    assert len(err.splitlines()) == 1, err


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("HANSEI_LLM_PROVIDER", "openai", "HANSEI_LLM_PROVIDER=openai needs an API key."),
        ("HANSEI_EVALUATORS", "llm", "HANSEI_EVALUATORS has llm, which needs a model"),
        ("HANSEI_EVALUATION_THRESHOLDS", "1,0", "HANSEI_EVALUATION_THRESHOLDS"),
        ("HANSEI_SECTIONS_FILE", "/none.yaml", "HANSEI_SECTIONS_FILE"),
    ],
)
@pytest.mark.parametrize("command", ["up", "serve"])
def test_wrong_setting_of_several_processes_is_one_line(
    command: str, setting: str, value: str, expected: str, database: Database
) -> None:
    env = {"HANSEI_DATABASE_URL": database.url("hansei_app"), setting: value}
    options = ("--processes", "2", "--port", str(free_port()))
    status, _, err = run_command_here((command, *options), env)
    assert status == 2, err
    assert expected in err
    assert len(err.splitlines()) == 1, "checked before anything starts"


def total(metrics: str, name: str) -> float:
    """The sum of the samples of a metric."""
    return sum(float(n) for n in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", metrics, re.MULTILINE))


@pytest.mark.parametrize(
    ("quota", "memory", "most"),
    [
        ("max 100000", "max", MAX_DEFAULT_PROCESSES),
        ("50000 100000", "max", 1),
        ("200000 100000", "max", 2),
        ("max 100000", str(MEMORY_PER_PROCESS - 1), 1),
        (None, None, MAX_DEFAULT_PROCESSES),
    ],
)
def test_default_number_of_api_processes_follows_cores_and_limits_of_container(
    tmp_path: Path, quota: str | None, memory: str | None, most: int
) -> None:
    for name, text in (("cpu.max", quota), ("memory.max", memory)):
        if text is not None:
            (tmp_path / name).write_text(f"{text}\n")
    cores = len(os.sched_getaffinity(0))
    expected = min(cores, psutil.virtual_memory().total // MEMORY_PER_PROCESS, most)
    assert default_process_count(tmp_path) == max(1, expected)


async def test_api_processes_share_port_and_metrics(database: Database) -> None:
    """The service stays up while one process is replaced, the metrics are those of all, also of
    the ended one, and all end together.
    """
    port = free_port()
    env = {name: value for name, value in os.environ.items() if "HANSEI" not in name}
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hansei", "serve", "--processes", "2", "--port", str(port)),
        cwd=ROOT,
        env=env | {"HANSEI_DATABASE_URL": database.url("hansei_app"), "HANSEI_LOG_LEVEL": "error"},
    )

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return answer.read().decode()

    def children() -> set[int]:
        found = psutil.Process(server.pid).children()
        return {p.pid for p in found if p.status() != psutil.STATUS_ZOMBIE}

    try:
        await asyncio.to_thread(eventually, lambda: len(children()) == 2)
        await asyncio.to_thread(get, "/health/ready")
        first = children()
        for _ in range(20):  # each on a connection of its own
            await asyncio.to_thread(get, "/health")
        killed = min(first)
        os.kill(killed, signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: len(children() - {killed}) == 2)
        metrics = await asyncio.to_thread(get, "/metrics")
        # A request is counted after its answer: of the last one, the killed process may not have.
        assert total(metrics, "hansei_http_requests_total") >= 20
        assert total(metrics, "hansei_http_requests_in_progress") == 1, "this one"
        assert total(metrics, "hansei_database_up") == 1
        assert (first & children()) != set(), "the other process was not replaced"
        last = children()
    finally:
        server.terminate()
        status = await asyncio.wait_for(server.wait(), PATIENCE)
    assert status == 0
    assert not any(psutil.pid_exists(pid) for pid in last)
