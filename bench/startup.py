"""Start-up time of `hansei up`, from an empty directory and again, and memory of its processes; CPU
time of `import hansei` and of the help. As after an installation, all modules are compiled before.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.report import Report
from memory_api.embedded.server import EmbeddedPostgres

SETTLE_SECONDS = 5.0
"""Time between a start and the measurement of its memory."""


def compile_modules(cache: Path) -> None:
    """Let Python compile the modules into `cache`, as pip does when it installs them. Without this,
    PYTHONDONTWRITEBYTECODE in the environment would add the compiler to each start.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(cache)
    with tempfile.TemporaryDirectory() as folder:
        start(Path(folder) / "data")
        EmbeddedPostgres(Path(folder) / "data").destroy()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(folder: Path) -> tuple[float, list[tuple[str, float]]]:
    """Start and stop it. Returns the seconds until ready, and (process, resident MB) of each."""
    command = [sys.executable, "-m", "hansei", "up", "--json", "--port", str(free_port())]
    since = time.perf_counter()
    with subprocess.Popen(
        [*command, "--data-dir", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        seconds = time.perf_counter() - since
        time.sleep(SETTLE_SECONDS)  # other processes start after the first
        parent = psutil.Process(process.pid)
        ours = [c for c in parent.children() if "memory_api" in c.cmdline()]
        processes = [("up", parent)] + [(c.cmdline()[3], c) for c in ours]
        sizes = [(name, one.memory_info().rss / 2**20) for name, one in processes]
        process.send_signal(signal.SIGINT)
        process.wait()
    return seconds, sizes


COMMANDS = {
    "import hansei": (["-c", "import hansei"], 120),
    "hansei --help": (["-m", "hansei", "--help"], 250),
}
"""Name → arguments of Python, and the goal in milliseconds."""
REPEATS = 9


def cpu_milliseconds(arguments: list[str]) -> float:
    """The median CPU time of a Python process, which other processes of the machine affect less
    than its duration.
    """
    taken: list[float] = []
    for _ in range(REPEATS):
        before = os.times()
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        seconds = after.children_user + after.children_system
        taken.append(1000 * (seconds - before.children_user - before.children_system))
    return statistics.median(taken)


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        compile_modules(Path(cache))
        measure()


def measure() -> None:
    report = Report(
        "startup",
        f"`hansei up` with its own PostgreSQL. {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the start. The "
        "first start creates the database. All modules are compiled, as after an installation. "
        "Resident memory five seconds later, before any request.",
    )
    report.table("commands", "Commands", "command", "CPU, ms (median)", "goal, ms")
    for name, (arguments, goal) in COMMANDS.items():
        report.row("commands", name, f"{cpu_milliseconds(arguments):.0f}", f"≤ {goal}")
    report.table("starts", "Start-up", "start", "ready, s", "resident, MB")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        for name in ("first", "second", "third"):
            seconds, sizes = start(data)
            memory = ", ".join(f"{who} {size:.0f}" for who, size in sizes)
            report.row("starts", name, f"{seconds:.2f}", memory)
        EmbeddedPostgres(data).destroy()
    report.finish()


if __name__ == "__main__":
    main()
