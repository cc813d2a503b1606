"""Processes of the service that start in 0.1 s instead of 2 s: they are forked from one that has
imported it. They can be killed and stopped like any others."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Callable, Mapping
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.paths import ROOT

PRELOADED = [f"memory_api.commands.{name}" for name in ("processes", "database")]


@cache
def _context() -> Any:
    """Starts the process that the others are forked from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with patch.dict(os.environ, PYTHONPATH=f"{ROOT / 'apps'}:{ROOT / 'sdk'}:{ROOT}"):
        forkserver.ensure_running()
    return context


class ForkedProcess:
    """A process with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._process = _context().Process(target=target, args=arguments)
        self._process.start()
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int:
        self._process.join()
        return self._process.exitcode

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def start_command(arguments: list[str], env: Mapping[str, str], log: Path) -> ForkedProcess:
    """A server command of `hansei` with an environment of its own. Its output is appended to a
    file."""
    return ForkedProcess(_run_command, arguments, dict(env), str(log))


def _run_command(arguments: list[str], env: dict[str, str], log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    _set_up(output, ["hansei", *arguments])
    os.environ.clear()
    os.environ.update(env)
    runpy.run_module("memory_api", run_name="__main__", alter_sys=True)


def start_program(source: str, argument: str) -> tuple[ForkedProcess, Connection]:
    """A program that uses the service, in the environment of now, and the reading end of its
    output."""
    reader, writer = _context().Pipe(duplex=False)
    with writer:
        return ForkedProcess(_run_program, source, argument, dict(os.environ), writer), reader


def _run_program(source: str, argument: str, env: dict[str, str], output: Connection) -> None:
    _set_up(output.fileno(), ["-c", argument])
    os.environ.clear()
    os.environ.update(env)
    exec(compile(source, "<program>", "exec"), {"__name__": "__main__"})


def _set_up(output: int, argv: list[str]) -> None:
    os.setsid()
    os.chdir(ROOT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = argv
