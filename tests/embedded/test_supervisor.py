from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from memory_api.embedded.supervisor import (
    ChildMisconfigured,
    ChildProcess,
    RestartBackoff,
    Supervisor,
)
from tests.support.processes import PATIENCE, Person, eventually


class SupervisorProcess:
    """A supervisor in a process of its own, and the file its children write."""

    def __init__(
        self, file: Path, current_user: Person, processes: list[subprocess.Popen[str]]
    ) -> None:
        self.file, self._me, self._processes = file, current_user, processes
        file.touch()

    def open(self, *children: str, **env: str) -> subprocess.Popen[str]:
        process = self._me.run("supervisor.py", self.file, *children, **env)
        self._processes.append(process)
        names = [child.split(":")[0] for child in children]
        eventually(lambda: all(self.pids(name) for name in names))
        return process

    def notes(self) -> list[str]:
        return self.file.read_text().splitlines()

    def pids(self, name: str) -> list[int]:
        return [int(n.split()[2]) for n in self.notes() if n.startswith(f"{name} up ")]


@pytest.fixture
def supervised(
    tmp_path: Path, current_user: Person, processes: list[subprocess.Popen[str]]
) -> Iterator[SupervisorProcess]:
    opened = SupervisorProcess(tmp_path / "notes", current_user, processes)
    yield opened
    for process in processes:
        process.kill()
    for note in opened.notes():
        if " up " in note and not gone(int(note.split()[2])):  # a broken test left it
            os.kill(int(note.split()[2]), signal.SIGKILL)


def finish(process: subprocess.Popen[str]) -> list[str]:
    said, _ = process.communicate(timeout=PATIENCE)
    return said.splitlines()


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_drains_children_in_order(
    supervised: SupervisorProcess, sent: signal.Signals
) -> None:
    process = supervised.open("api:linger:20", "worker:work:20")
    process.send_signal(sent)
    assert finish(process) == ["drained"]
    assert [n for n in supervised.notes() if " up " not in n] == [
        "api leaving",
        "api left",
        "worker leaving",
        "worker left",
    ]


def test_repeated_signal_of_one_key_press_counts_once(supervised: SupervisorProcess) -> None:
    process = supervised.open("api:linger:20")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert finish(process) == ["drained"]


def test_second_signal_stops_immediately(supervised: SupervisorProcess) -> None:
    process = supervised.open("api:stubborn:600", "worker:work:600")
    process.send_signal(signal.SIGINT)
    eventually(lambda: "api leaving" in supervised.notes())

    def again() -> bool:
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    eventually(again)
    assert finish(process) == ["cut short"]
    assert "worker leaving" not in supervised.notes()
    assert gone(supervised.pids("api")[0])
    assert gone(supervised.pids("worker")[0])


def test_child_that_exceeds_drain_time_is_killed(supervised: SupervisorProcess) -> None:
    process = supervised.open("api:stubborn:0.2", "worker:work:20")
    process.send_signal(signal.SIGTERM)
    assert finish(process) == ["api did not stop within 0.2 s and was killed.", "drained"]
    assert gone(supervised.pids("api")[0])
    assert "worker left" in supervised.notes()


def test_children_drain_when_the_supervisor_is_killed(supervised: SupervisorProcess) -> None:
    process = supervised.open("api:work:20", "worker:work:20")
    process.kill()
    eventually(lambda: {"api left", "worker left"} <= set(supervised.notes()))
    for name in ("api", "worker"):
        eventually(lambda name=name: gone(supervised.pids(name)[0]))


def test_orphan_with_blocked_loop_exits(supervised: SupervisorProcess) -> None:
    process = supervised.open("api:hang:20", GRACE="0.2")
    process.kill()
    eventually(lambda: gone(supervised.pids("api")[0]))
    assert "api leaving" not in supervised.notes()


def test_children_live_in_their_own_session(supervised: SupervisorProcess) -> None:
    process = supervised.open("api:work:20")
    assert os.getsid(supervised.pids("api")[0]) == supervised.pids("api")[0]
    process.send_signal(signal.SIGTERM)
    finish(process)


def test_killed_child_is_reported_and_restarted(supervised: SupervisorProcess) -> None:
    process = supervised.open("api:work:20", "worker:work:20")
    os.kill(supervised.pids("worker")[0], signal.SIGKILL)
    eventually(lambda: len(supervised.pids("worker")) == 2)
    process.send_signal(signal.SIGTERM)
    report, end = finish(process)
    assert re.fullmatch(
        r"worker was killed by SIGKILL after \d+ s\. Restarting in 0\.05 s\.", report
    )
    assert end == "drained"
    assert len(supervised.pids("api")) == 1


def test_back_off_doubles_up_to_its_limit(supervised: SupervisorProcess) -> None:
    process = supervised.open("api:crash:20")
    eventually(lambda: len(supervised.pids("api")) == 5)
    process.send_signal(signal.SIGTERM)
    said = finish(process)
    assert [line.partition("Restarting in ")[2] for line in said[:4]] == [
        "0.05 s.",
        "0.1 s.",
        "0.2 s.",
        "0.2 s.",
    ]
    assert said[0].startswith("api exited with status 3 after ")


async def test_back_off_resets_after_stable_run() -> None:
    reports: list[str] = []
    child = ChildProcess("api", [sys.executable, "-c", "raise SystemExit(1)"])
    supervisor = Supervisor(
        [child],
        report=reports.append,
        backoff=RestartBackoff(0.01, max_seconds=5, reset_after_seconds=0),
    )
    running = asyncio.create_task(supervisor.run())
    while len(reports) < 3:
        await asyncio.sleep(0.02)
    supervisor.stop()
    assert await running
    assert all(line.endswith("Restarting in 0.01 s.") for line in reports)


async def test_misconfigured_child_ends_the_supervisor() -> None:
    reports: list[str] = []
    children = [
        ChildProcess("api", [sys.executable, "-c", "import time; time.sleep(60)"]),
        ChildProcess("worker", [sys.executable, "-c", "raise SystemExit(2)"]),
    ]
    with pytest.raises(ChildMisconfigured, match="The worker process cannot start"):
        await Supervisor(children, report=reports.append).run()
    assert reports == [], "the child itself prints the reason"


async def test_stop_does_not_wait_for_the_back_off() -> None:
    reports: list[str] = []
    child = ChildProcess("api", [sys.executable, "-c", ""])
    supervisor = Supervisor(
        [child], report=reports.append, backoff=RestartBackoff(first_seconds=600)
    )
    running = asyncio.create_task(supervisor.run())
    while not reports:
        await asyncio.sleep(0.02)
    supervisor.stop()
    assert await asyncio.wait_for(running, PATIENCE)


async def test_child_waits_for_its_event(tmp_path: Path) -> None:
    event, file = asyncio.Event(), tmp_path / "started"
    waiting = ChildProcess("worker", ["sh", "-c", f"touch {file}; sleep 600"], start_after=event)
    other = ChildProcess("api", ["sleep", "600"])
    supervisor = Supervisor([other, waiting], report=print)
    running = asyncio.create_task(supervisor.run())
    await asyncio.sleep(0.3)
    assert not file.exists()
    event.set()
    async with asyncio.timeout(PATIENCE):
        while not file.exists():
            await asyncio.sleep(0.01)
        supervisor.stop()
        assert await running


async def test_stop_does_not_wait_for_the_event_of_a_child() -> None:
    waiting = ChildProcess("worker", ["sleep", "600"], start_after=asyncio.Event())
    supervisor = Supervisor([waiting], report=print)
    running = asyncio.create_task(supervisor.run())
    await asyncio.sleep(0)
    supervisor.stop()
    async with asyncio.timeout(PATIENCE):
        assert await running


async def test_child_that_cannot_be_started_ends_the_others_and_is_raised(tmp_path: Path) -> None:
    good = ChildProcess("good", [sys.executable, "-c", "import time; time.sleep(600)"])
    bad = ChildProcess("bad", [str(tmp_path / "no-such-program")])
    supervisor = Supervisor([good, bad], report=lambda _: None)
    with pytest.raises(FileNotFoundError):
        await asyncio.wait_for(supervisor.run(), PATIENCE)
    assert not [c for c in psutil.Process().children() if "time.sleep(600)" in str(c.cmdline())]


async def test_patrol_continues_after_reported_failure() -> None:
    reports: list[str] = []
    rounds = 0

    async def check() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise RuntimeError("no database")
        if rounds == 3:
            supervisor.stop()

    supervisor = Supervisor(
        [], report=reports.append, health_check=check, health_check_seconds=0.01
    )
    assert await asyncio.wait_for(supervisor.run(), PATIENCE)
    assert rounds == 3
    assert reports == ["health check failed: no database"]


async def test_second_stop_does_not_wait_for_the_patrol() -> None:
    begun = asyncio.Event()

    async def check() -> None:
        begun.set()
        await asyncio.sleep(600)

    supervisor = Supervisor(
        [], report=lambda _: None, health_check=check, health_check_seconds=0.01
    )
    running = asyncio.create_task(supervisor.run())
    await begun.wait()
    while not running.done():
        supervisor.stop()
        await asyncio.sleep(0.05)
    assert await running is False
