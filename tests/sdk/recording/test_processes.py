"""No trace is lost when processes fork, spawn and end in the usual ways."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sdk.stub_service import KEY, StubService

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

IDLE_CHILD = """
import os, sys, hansei
with hansei.trace("parent 1"):
    pass
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
with hansei.trace("parent 2"):
    pass
assert hansei.flush() == 0
"""

RECORDING_CHILDREN = """
import os, sys, hansei
with hansei.trace("parent"):
    pass
for number, leave in enumerate((sys.exit, os._exit)):
    child = os.fork()
    if child == 0:
        with hansei.trace(f"child {number}") as t:
            t.message("user", "hello")
            t.set_outcome("success")
        leave(0)
    os.waitpid(child, 0)
"""

FORK_IN_A_RUN = """
import os, sys, hansei
with hansei.trace("parent") as t:
    t.message("user", "before")
    child = os.fork()
    if child == 0:
        t.message("user", "in the child")
        sys.exit(0)
    os.waitpid(child, 0)
    t.message("user", "after")
"""

EXPLICIT_RECORDER = """
import os, sys, hansei
recorder = hansei.Recorder()
child = os.fork()
with hansei.trace("child" if child == 0 else "parent", recorder=recorder):
    pass
if child:
    os.waitpid(child, 0)
"""

POOLS = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import hansei

def run(name):
    with hansei.trace(name) as t:
        t.message("user", name)
        t.set_outcome("success")

if __name__ == "__main__":
    run("parent")
    context = multiprocessing.get_context(sys.argv[1])
    processes = [context.Process(target=run, args=(f"process {n}",)) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        list(executor.map(run, [f"pool {n}" for n in range(4)]))
"""

PRELOADED = """
import os, signal, hansei
with hansei.trace("before the fork"):
    pass
workers = []
for number in range(3):
    worker = os.fork()
    if worker == 0:
        for request in range(5):
            with hansei.trace(f"worker {number} request {request}"):
                pass
        os.kill(os.getpid(), signal.SIGKILL)
    workers.append(worker)
for worker in workers:
    os.waitpid(worker, 0)
assert hansei.flush() == 0
"""

PREFORK = """
import os, signal, sys, threading, hansei

def run(name):
    with hansei.trace(name) as t:
        t.tool_call("charge", {"order": name}, result="ok")
        t.set_outcome("success")

def record_until(ended):
    number = 0
    while not ended.is_set():
        run(f"main {number}")
        number += 1
    run(f"main ran {number}")

def work(number, reading):
    for task in os.fdopen(reading):
        run(f"worker {number} {task.strip()}")
        if task.strip() == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)

run("import")
ended = threading.Event()
main = threading.Thread(target=record_until, args=(ended,))
main.start()
workers = []
for number in range(8):
    reading, writing = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(writing)
        work(number, reading)
    os.close(reading)
    workers.append((worker, writing))
for number, (worker, writing) in enumerate(workers):
    os.write(writing, b"one\\ntwo\\nkill\\n" if number == 7 else b"one\\ntwo\\nthree\\n")
for _, writing in workers:
    os.close(writing)
for worker, _ in workers:
    os.waitpid(worker, 0)
ended.set()
main.join()
assert hansei.flush() == 0
"""


@pytest.fixture
def run(service: StubService, spool: Path, tmp_path: Path):
    """Runs a program that records to the stub service, and returns the names of the traces."""

    def start(program: str, *arguments: str) -> list[str]:
        path = tmp_path / "agent.py"
        path.write_text(program)
        environment = os.environ | {
            "HANSEI_URL": service.url,
            "HANSEI_API_KEY": KEY,
            "HANSEI_SPOOL_DIR": str(spool),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(path), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "lost" not in done.stderr
        return sorted(trace["task_description"] for trace in service.traces.values())

    return start


def test_child_that_does_not_record_leaves_the_spool_of_its_parent(run) -> None:
    assert run(IDLE_CHILD) == ["parent 1", "parent 2"]


def test_children_record_and_end_in_any_way(run) -> None:
    assert run(RECORDING_CHILDREN) == ["child 0", "child 1", "parent"]


def test_run_belongs_to_the_process_that_began_it(run, service: StubService) -> None:
    assert run(FORK_IN_A_RUN) == ["parent"]
    (stored,) = service.traces.values()
    assert [event["content"] for event in stored["events"]] == ["before", "after"]


def test_recorder_without_close_is_flushed_at_exit_in_parent_and_child(run) -> None:
    assert run(EXPLICIT_RECORDER) == ["child", "parent"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_and_its_pools(run, method: str) -> None:
    expected = [f"pool {n}" for n in range(4)] + [f"process {n}" for n in range(3)]
    assert run(POOLS, method) == sorted(["parent", *expected])


def test_killed_workers_of_a_preloaded_server(run) -> None:
    """As gunicorn with `preload_app`: what the workers had ended is sent by their parent."""
    expected = [f"worker {w} request {r}" for w in range(3) for r in range(5)]
    assert run(PRELOADED) == sorted(["before the fork", *expected])


def test_workers_of_a_prefork_pool(run) -> None:
    """As Celery's pool forks them: after the import, while the main process records, and the
    workers leave without `atexit` or are killed. Celery itself is no dependency of the tests.
    """
    traces = run(PREFORK)
    (total,) = (int(name.split()[-1]) for name in traces if name.startswith("main ran "))
    tasks = [("one", "two", "kill" if number == 7 else "three") for number in range(8)]
    expected = ["import", f"main ran {total}", *(f"main {n}" for n in range(total))]
    expected += [f"worker {n} {task}" for n in range(8) for task in tasks[n]]
    assert total > 8  # recorded while it forked
    assert traces == sorted(expected)
