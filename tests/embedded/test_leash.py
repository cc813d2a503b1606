from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apps.memory_api.embedded.leash import LEASH_FD, leashed
from tests.embedded.processes import PATIENCE, Person


@pytest.fixture
def on_leash(me: Person) -> Iterator[Callable[..., tuple[subprocess.Popen[str], int]]]:
    """Starts the program `leash.py` → its process, and the supervisor's end of its pipe."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], int]:
        theirs, ours = os.pipe()
        process = me.run("leash.py", *arguments, pass_fds=[theirs], **{LEASH_FD: str(theirs)})
        started.append(process)
        os.close(theirs)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process, ours

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def test_without_a_supervisor_a_signal_stops() -> None:
    stop = asyncio.Event()
    with leashed(stop):
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), PATIENCE)


async def test_signals_are_left_alone_when_asked() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with leashed(asyncio.Event(), signals=False):
        assert signal.getsignal(signal.SIGTERM) is before


def test_the_closing_pipe_stops(
    on_leash: Callable[..., tuple[subprocess.Popen[str], int]],
) -> None:
    process, supervisor = on_leash()
    os.close(supervisor)
    said, _ = process.communicate(timeout=PATIENCE)
    assert said == "stopped\n"
    assert process.returncode == 0


def test_a_grandchild_holds_no_leash(
    on_leash: Callable[..., tuple[subprocess.Popen[str], int]],
) -> None:
    process, supervisor = on_leash("grandchild")
    os.close(supervisor)
    said, _ = process.communicate(timeout=PATIENCE)
    assert said == "grandchild: None []\nstopped\n"


@pytest.mark.parametrize("value", ["9999", "banana", "-1", "1.5"])
async def test_a_wrong_leash_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv(LEASH_FD, value)
    with pytest.raises(RuntimeError, match=f"{LEASH_FD}={value}"), leashed(asyncio.Event()):
        pass
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_file_is_no_leash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setenv(LEASH_FD, str(file.fileno()))
        with pytest.raises(RuntimeError, match="not a pipe"), leashed(asyncio.Event()):
            pass
