"""Several API processes that share a port: `hansei serve --processes` and `hansei up --processes`.

The parent opens the port and the children inherit it, so that the kernel gives a new connection to
a process that is ready for it. The parent stays small: it does not import the service.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import psutil

from hansei.cli.terminal import print_message
from memory_api.commands.database import (
    CommandFailed,
    exit_on_error,
    open_database,
)
from memory_api.core.personal_data import PERSONAL_DATA, PersonalDataOptions
from memory_api.core.settings import Settings
from memory_api.core.tracing import check_tracing
from memory_api.embedded.data_directory import PortUnavailable
from memory_api.embedded.ports import open_listener
from memory_api.embedded.supervisor import (
    INVALID_CONFIGURATION_STATUS,
    ChildMisconfigured,
    ChildProcess,
    Supervisor,
)
from memory_api.llm.registry import check_model_settings

HANSEI_COMMAND = (sys.executable, "-P", "-m", "memory_api")
"""Without `-P`, Python would import modules of the current folder, such as a cloned one."""
API_DRAIN_SECONDS = 3.5
"""Time between the signal to stop and the kill of an API process, in seconds."""
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable of prometheus_client for the metrics of several processes."""


MAX_DEFAULT_PROCESSES = 4
"""PostgreSQL and the worker need the other cores of a larger machine."""
MEMORY_PER_PROCESS = 1 << 30
"""Bytes of memory of the machine for each API process: it may use 400 MB, and PostgreSQL and the
worker need the rest.
"""
CGROUP = Path("/sys/fs/cgroup")


def default_process_count(cgroup: Path = CGROUP) -> int:
    """One API process per core, and per `MEMORY_PER_PROCESS`, that the operating system or the
    container gives this process; 1 to `MAX_DEFAULT_PROCESSES`.
    """
    cores = psutil.Process().cpu_affinity() if hasattr(psutil.Process, "cpu_affinity") else None
    count = float(len(cores) if cores else os.cpu_count() or 1)
    memory = psutil.virtual_memory().total
    with suppress(OSError, ValueError):  # no limit, or not Linux
        quota, period = (cgroup / "cpu.max").read_text().split()
        count = min(count, float(quota) / float(period))
    with suppress(OSError, ValueError):
        memory = min(memory, int((cgroup / "memory.max").read_text()))
    return max(1, int(min(count, memory / MEMORY_PER_PROCESS, MAX_DEFAULT_PROCESSES)))


def run_processes(host: str, port: int, data_dir: Path | None, processes: int | None) -> None:
    """`processes` is None for the default."""
    count = processes or default_process_count()
    if count == 1:
        serve = import_module("memory_api.commands.processes").run_serve
        serve(host, port, data_dir, None)
        return
    with exit_on_error():
        settings = Settings.load()
        check_settings(settings)
        options = ["--data-dir", str(data_dir)] if data_dir else []
        with (
            open_database(settings, data_dir, create=True),
            api_children(host, port, count, options) as api,
        ):
            supervisor = Supervisor(api, report=_report)
            try:
                was_drained = asyncio.run(supervisor.run())
            except ChildMisconfigured:  # it has printed the reason
                sys.exit(INVALID_CONFIGURATION_STATUS)
    sys.exit(0 if was_drained else 1)


def check_settings(settings: Settings) -> None:
    """Raises `ConfigurationError` before anything starts, so that it is printed once, not by each
    process.
    """
    check_model_settings(settings)
    check_tracing(settings.otel_endpoint)
    options = PersonalDataOptions.parse(settings.pii_redaction, settings.pii_phone_region)
    PERSONAL_DATA.configure(options)
    # The checks below import what this process does not need otherwise.
    if settings.embedding_provider != "static":
        import_module("memory_api.embeddings.registry").open_default_embedder(settings)
    if settings.model_fields_set & {"evaluators", "evaluation_thresholds"}:
        import_module("memory_api.evaluation.evaluators.registry").check_settings(settings)
    if settings.sections_file is not None:
        import_module("memory_api.playbooks.sections").check_section_file(settings)
    if any(name.startswith("GRACE_") for name in os.environ):
        import_module("memory_api.grace.config").load_config()
    if settings.budget_webhook_url is not None:
        import_module("memory_api.maintenance.budget_alerts").check_budget_webhook(settings)


def _report(line: str) -> None:
    print_message(f"hansei: {line}")


@contextmanager
def api_children(
    host: str, port: int, processes: int, options: Sequence[str]
) -> Generator[list[ChildProcess]]:
    """The API processes to supervise. Raises `CommandFailed` if the port is not free. The port and
    the folder of the metrics exist until the block ends.
    """
    address = ("--host", host, "--port", str(port))
    command = [*HANSEI_COMMAND, "serve", "--processes", "1", *address, *options]
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
