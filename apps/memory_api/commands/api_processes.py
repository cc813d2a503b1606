"""Several API processes that share a port: `hansei serve --processes` and `hansei up --processes`.

The parent opens the port and the children inherit it, so that the kernel gives a new connection to
a process that is ready for it. The parent stays small: it does not import the service.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from apps.memory_api.commands.database import (
    CommandFailed,
    UsageError,
    exit_on_error,
    open_database,
)
from apps.memory_api.core.settings import Settings
from apps.memory_api.embedded.data_directory import PortUnavailable
from apps.memory_api.embedded.ports import open_listener
from apps.memory_api.embedded.supervisor import ChildMisconfigured, ChildProcess, Supervisor

HANSEI_COMMAND = (sys.executable, "-m", "apps.memory_api")
API_DRAIN_SECONDS = 3.5
"""Time between the signal to stop and the kill of an API process, in seconds."""
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable of prometheus_client for the metrics of several processes."""


def run_processes(host: str, port: int, data_dir: Path | None, processes: int) -> None:
    with exit_on_error():
        settings = Settings.load()
        options = ["--data-dir", str(data_dir)] if data_dir else []
        with open_database(settings, data_dir), api_children(host, port, processes, options) as api:
            supervisor = Supervisor(api, report=_report)
            try:
                was_drained = asyncio.run(supervisor.run())
            except ChildMisconfigured as error:
                raise UsageError(str(error)) from error
    sys.exit(0 if was_drained else 1)


def _report(line: str) -> None:
    typer.echo(f"hansei: {line}", err=True)


@contextmanager
def api_children(
    host: str, port: int, processes: int, options: Sequence[str]
) -> Generator[list[ChildProcess]]:
    """The API processes to supervise. Raises `CommandFailed` if the port is not free. The port and
    the folder of the metrics exist until the block ends.
    """
    command = [*HANSEI_COMMAND, "serve", "--host", host, "--port", str(port), *options]
    try:
        listener = open_listener(host, port)
    except PortUnavailable as error:
        raise CommandFailed(f"{error} Choose another port with --port.") from error
    if processes == 1:
        listener.close()
        yield [ChildProcess("api", command, drain_seconds=API_DRAIN_SECONDS)]
        return
    with listener, tempfile.TemporaryDirectory(prefix="hansei-metrics-") as folder:
        child = ChildProcess(
            "api",
            [*command, "--listen-fd", str(listener.fileno())],
            env={METRICS_FOLDER: folder},
            drain_seconds=API_DRAIN_SECONDS,
            pass_fds=[listener.fileno()],
        )
        yield [child] * processes
