"""Server commands of `hansei` inside the test process: a process each would cost seconds."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Mapping
from unittest.mock import patch

import structlog
import typer
from typer.testing import CliRunner

from memory_api.__main__ import register


async def run_command(arguments: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit status, standard output and standard error. `env` stands in for all of the machine's
    variables of the service."""
    return await asyncio.to_thread(run_command_here, arguments, env)


def run_command_here(arguments: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, str, str]:
    """The same in the main thread, for commands that handle signals."""
    application = typer.Typer()
    register(application)
    others = {
        name: value
        for name, value in os.environ.items()
        if "HANSEI" not in name and not name.endswith("_API_KEY")
    }
    structured = structlog.get_config()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    on_signal = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with patch.dict(os.environ, {**others, **env}, clear=True):
            done = CliRunner().invoke(application, arguments)
    finally:  # a command configures logging for the whole process
        structlog.configure(**structured)
        root.handlers[:], root.level = handlers, level
        if threading.current_thread() is threading.main_thread():
            for number, handler in on_signal.items():
                signal.signal(number, handler)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr
