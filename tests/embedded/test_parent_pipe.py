from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memory_api.embedded.supervisor import PARENT_PIPE_FD, watch_parent
from tests.support.processes import PATIENCE, Person


@pytest.fixture
def watched_process(
    current_user: Person,
) -> Iterator[Callable[..., tuple[subprocess.Popen[str], int]]]:
    """Starts the program `watched_child.py` → its process, and the supervisor's end of its pipe."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], int]:
        theirs, ours = os.pipe()
        process = current_user.run(
            "watched_child.py", *arguments, pass_fds=[theirs], **{PARENT_PIPE_FD: str(theirs)}
        )
        started.append(process)
        os.close(theirs)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process, ours

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def test_signal_stops_process_without_supervisor() -> None:
    stop = asyncio.Event()
    with watch_parent(stop):
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), PATIENCE)


async def test_signals_are_ignored_on_request() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with watch_parent(asyncio.Event(), signals=False):
        assert signal.getsignal(signal.SIGTERM) is before


def test_closed_pipe_stops_process(
    watched_process: Callable[..., tuple[subprocess.Popen[str], int]],
) -> None:
    process, supervisor = watched_process()
    os.close(supervisor)
    said, _ = process.communicate(timeout=PATIENCE)
    assert said == "stopped\n"
    assert process.returncode == 0


def test_grandchild_does_not_inherit_pipe(
    watched_process: Callable[..., tuple[subprocess.Popen[str], int]],
) -> None:
    process, supervisor = watched_process("grandchild")
    os.close(supervisor)
    said, _ = process.communicate(timeout=PATIENCE)
    assert said == "grandchild: None []\nstopped\n"


@pytest.mark.parametrize("value", ["9999", "banana", "-1", "1.5"])
async def test_invalid_pipe_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv(PARENT_PIPE_FD, value)
    with (
        pytest.raises(RuntimeError, match=f"{PARENT_PIPE_FD}={value}"),
        watch_parent(asyncio.Event()),
    ):
        pass
    assert signal.getsignal(signal.SIGTERM) is before


async def test_file_is_not_accepted_as_pipe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setenv(PARENT_PIPE_FD, str(file.fileno()))
        with pytest.raises(RuntimeError, match="not a pipe"), watch_parent(asyncio.Event()):
            pass
