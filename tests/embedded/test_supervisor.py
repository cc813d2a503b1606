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

from apps.memory_api.embedded.supervisor import Backoff, Child, Supervisor
from tests.embedded.processes import PATIENCE, Person, eventually


class School:
    """A supervisor in a process of its own, and the file its pupils write."""

    def __init__(self, file: Path, me: Person, processes: list[subprocess.Popen[str]]) -> None:
        self.file, self._me, self._processes = file, me, processes
        file.touch()

    def open(self, *pupils: str, **env: str) -> subprocess.Popen[str]:
        process = self._me.run("supervise.py", self.file, *pupils, **env)
        self._processes.append(process)
        names = [pupil.split(":")[0] for pupil in pupils]
        eventually(lambda: all(self.pids(name) for name in names))
        return process

    def notes(self) -> list[str]:
        return self.file.read_text().splitlines()

    def pids(self, name: str) -> list[int]:
        return [int(n.split()[2]) for n in self.notes() if n.startswith(f"{name} up ")]


@pytest.fixture
def school(tmp_path: Path, me: Person, processes: list[subprocess.Popen[str]]) -> Iterator[School]:
    opened = School(tmp_path / "notes", me, processes)
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
def test_a_signal_drains_one_after_the_other(school: School, sent: signal.Signals) -> None:
    process = school.open("api:linger:20", "worker:work:20")
    process.send_signal(sent)
    assert finish(process) == ["drained"]
    assert [n for n in school.notes() if " up " not in n] == [
        "api leaving",
        "api left",
        "worker leaving",
        "worker left",
    ]


def test_two_signals_of_one_key_press_are_one(school: School) -> None:
    process = school.open("api:linger:20")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert finish(process) == ["drained"]


def test_a_second_signal_leaves_at_once(school: School) -> None:
    process = school.open("api:stubborn:600", "worker:work:600")
    process.send_signal(signal.SIGINT)
    eventually(lambda: "api leaving" in school.notes())

    def again() -> bool:
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    eventually(again)
    assert finish(process) == ["cut short"]
    assert "worker leaving" not in school.notes()
    assert gone(school.pids("api")[0])
    assert gone(school.pids("worker")[0])


def test_a_child_that_does_not_leave_in_its_time_is_killed(school: School) -> None:
    process = school.open("api:stubborn:0.2", "worker:work:20")
    process.send_signal(signal.SIGTERM)
    assert finish(process) == ["api did not leave in 0.2 s: killed", "drained"]
    assert gone(school.pids("api")[0])
    assert "worker left" in school.notes()


def test_children_drain_when_the_supervisor_is_killed(school: School) -> None:
    process = school.open("api:work:20", "worker:work:20")
    process.kill()
    eventually(lambda: {"api left", "worker left"} <= set(school.notes()))
    for name in ("api", "worker"):
        eventually(lambda name=name: gone(school.pids(name)[0]))


def test_an_orphan_whose_loop_hangs_ends_itself(school: School) -> None:
    process = school.open("api:hang:20", GRACE="0.2")
    process.kill()
    eventually(lambda: gone(school.pids("api")[0]))
    assert "api leaving" not in school.notes()


def test_children_live_in_their_own_session(school: School) -> None:
    process = school.open("api:work:20")
    assert os.getsid(school.pids("api")[0]) == school.pids("api")[0]
    process.send_signal(signal.SIGTERM)
    finish(process)


def test_a_killed_child_is_reported_and_restarted(school: School) -> None:
    process = school.open("api:work:20", "worker:work:20")
    os.kill(school.pids("worker")[0], signal.SIGKILL)
    eventually(lambda: len(school.pids("worker")) == 2)
    process.send_signal(signal.SIGTERM)
    report, end = finish(process)
    assert re.fullmatch(r"worker was killed by SIGKILL after \d+ s; again in 0.05 s", report)
    assert end == "drained"
    assert len(school.pids("api")) == 1


def test_back_off_doubles_up_to_its_limit(school: School) -> None:
    process = school.open("api:crash:20")
    eventually(lambda: len(school.pids("api")) == 5)
    process.send_signal(signal.SIGTERM)
    said = finish(process)
    assert [line.partition("again in ")[2] for line in said[:4]] == [
        "0.05 s",
        "0.1 s",
        "0.2 s",
        "0.2 s",
    ]
    assert said[0].startswith("api ended with status 3 after ")


async def test_back_off_starts_afresh_after_a_calm_time() -> None:
    reports: list[str] = []
    child = Child("api", [sys.executable, "-c", "raise SystemExit(1)"])
    supervisor = Supervisor(
        [child], report=reports.append, backoff=Backoff(first=0.01, longest=5, calm=0)
    )
    running = asyncio.create_task(supervisor.run())
    while len(reports) < 3:
        await asyncio.sleep(0.02)
    supervisor.stop()
    assert await running
    assert all(line.endswith("again in 0.01 s") for line in reports)


async def test_stop_does_not_wait_for_the_back_off() -> None:
    reports: list[str] = []
    child = Child("api", [sys.executable, "-c", ""])
    supervisor = Supervisor([child], report=reports.append, backoff=Backoff(first=600))
    running = asyncio.create_task(supervisor.run())
    while not reports:
        await asyncio.sleep(0.02)
    supervisor.stop()
    assert await asyncio.wait_for(running, PATIENCE)


async def test_a_child_that_cannot_be_started_ends_the_others_and_is_raised(tmp_path: Path) -> None:
    good = Child("good", [sys.executable, "-c", "import time; time.sleep(600)"])
    bad = Child("bad", [str(tmp_path / "no-such-program")])
    supervisor = Supervisor([good, bad], report=lambda _: None)
    with pytest.raises(FileNotFoundError):
        await asyncio.wait_for(supervisor.run(), PATIENCE)
    assert not [c for c in psutil.Process().children() if "time.sleep(600)" in str(c.cmdline())]


async def test_patrol_goes_on_after_a_failure_which_is_reported() -> None:
    reports: list[str] = []
    rounds = 0

    async def patrol() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise RuntimeError("no database")
        if rounds == 3:
            supervisor.stop()

    supervisor = Supervisor([], report=reports.append, patrol=patrol, patrol_seconds=0.01)
    assert await asyncio.wait_for(supervisor.run(), PATIENCE)
    assert rounds == 3
    assert reports == ["patrol: no database"]


async def test_a_second_stop_does_not_wait_for_the_patrol() -> None:
    begun = asyncio.Event()

    async def patrol() -> None:
        begun.set()
        await asyncio.sleep(600)

    supervisor = Supervisor([], report=lambda _: None, patrol=patrol, patrol_seconds=0.01)
    running = asyncio.create_task(supervisor.run())
    await begun.wait()
    while not running.done():
        supervisor.stop()
        await asyncio.sleep(0.05)
    assert await running is False
