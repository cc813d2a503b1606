"""Notices from a thread that the event loop of a process has not turned for long, because of work
that nobody expected to be slow.

The stack of the loop's thread is logged. A worker then ends, so that its supervisor starts another
one: the run that stood still has had its last attempt, and the other ones lose none.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import asyncpg
import structlog

from memory_api.core.db import tenant_transaction
from memory_api.core.errors import HanseiError
from memory_api.core.resources import read_sql
from memory_api.runs.lifecycle import describe_error
from memory_api.runs.tables import RunRow

MAX_STANDSTILL_SECONDS = 15.0
"""Longer than any step on the loop, and shorter than the lease of a run, so that no other worker
takes the run before it has ended.
"""
CHECK_SECONDS = 1.0
RELEASE_SECONDS = 5.0
_END_ATTEMPTS = read_sql("runs/queries.sql", "end_attempts")
_RETURN_RUN = read_sql("runs/queries.sql", "return_run")
_RELEASE_TICKET = read_sql("run_queue/queue.sql", "release_ticket")
_HELD: dict[UUID, RunRow] = {}
"""The runs that this process executes."""
_RUN: ContextVar[RunRow | None] = ContextVar("run", default=None)
"""The run that the code belongs to. Tasks that it starts inherit it."""
_RUNS_OF_TASKS: WeakKeyDictionary[asyncio.Task[Any], RunRow] = WeakKeyDictionary()
"""The watching thread needs it: in Python 3.11 it cannot read the context of another task."""

log = structlog.get_logger()


class RunStoodStill(HanseiError):
    """The run held its worker for too long, and the worker was restarted. It is not retried by
    itself.
    """

    status, code = 422, "standstill"


@contextmanager
def note_held(run: RunRow) -> Generator[None]:
    """The current task, and each one that it starts, executes this run."""
    task = asyncio.current_task()
    assert task is not None
    _HELD[run.id] = _RUNS_OF_TASKS[task] = run
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)
        del _HELD[run.id], _RUNS_OF_TASKS[task]


def _create_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
) -> asyncio.Task[Any]:
    task = asyncio.Task(coroutine, loop=loop, **options)
    if (run := _RUN.get()) is not None:
        _RUNS_OF_TASKS[task] = run
    return task


@contextmanager
def watch_loop(
    worker_url: str | None = None, *, max_seconds: float = MAX_STANDSTILL_SECONDS
) -> Generator[None]:
    """Watch the running event loop until the block ends. With the database URL of a worker, its
    process ends after a standstill.

    The time is counted in checks, so that a process that was suspended itself did not stand still.
    Code in C that keeps Python's global lock stops the thread too: after three times the time,
    `faulthandler` writes the stacks and ends the worker. Each of its runs has then lost an attempt.
    """
    ended = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_task_factory(_create_task)
    arguments = (loop, threading.get_ident(), ended, worker_url, max_seconds)
    threading.Thread(target=_watch, args=arguments, name="standstill", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        faulthandler.cancel_dump_traceback_later()


def _watch(
    loop: asyncio.AbstractEventLoop,
    thread_id: int,
    ended: threading.Event,
    worker_url: str | None,
    max_seconds: float,
) -> None:
    turned, checks = threading.Event(), 0
    turned.set()
    interval = min(CHECK_SECONDS, max_seconds / 4)
    while not ended.wait(interval):
        faulthandler.dump_traceback_later(3 * max_seconds, exit=worker_url is not None)
        if turned.is_set():
            turned.clear()
            checks = 0
            try:
                loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # the loop is closed
                return
        checks += 1
        if checks == round(max_seconds / interval):
            _report(loop, thread_id, max_seconds)
            if worker_url is not None:
                _end_process(loop, worker_url)


def _report(loop: asyncio.AbstractEventLoop, thread_id: int, seconds: float) -> None:
    run = _standing_run(loop)
    frame = sys._current_frames().get(thread_id)  # pyright: ignore[reportPrivateUsage]
    log.error(
        "event_loop_blocked",
        seconds=seconds,
        run_id=run and str(run.id),
        kind=run and run.kind,
        tenant_id=run and str(run.tenant_id),
        stack="".join(traceback.format_stack(frame)),
    )


def _standing_run(loop: asyncio.AbstractEventLoop) -> RunRow | None:
    task = asyncio.current_task(loop)
    return None if task is None else _RUNS_OF_TASKS.get(task)


def _end_process(loop: asyncio.AbstractEventLoop, url: str) -> None:
    """Without a known run that stood still, each run has lost an attempt, so that it ends too."""
    try:
        if (run := _standing_run(loop)) is not None:
            others = [other for other in _HELD.copy().values() if other.id != run.id]
            asyncio.run(asyncio.wait_for(_release_runs(url, run, others), RELEASE_SECONDS))
    except Exception as error:
        log.error("runs_not_released", error=str(error), exc_info=True)
    finally:
        os._exit(1)


async def _release_runs(url: str, standing: RunRow, others: list[RunRow]) -> None:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    error = json.dumps(describe_error(RunStoodStill()))
    for run in (standing, *others):
        owned = (run.tenant_id, run.id, run.lease_owner)
        async with tenant_transaction(connection, run.tenant_id, "READ WRITE"):
            if run is standing:
                await connection.execute(_END_ATTEMPTS, *owned, error)
            else:
                await connection.execute(_RETURN_RUN, *owned)
            await connection.execute(_RELEASE_TICKET, run.tenant_id, run.id)
