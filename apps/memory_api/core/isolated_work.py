"""CPU-bound work on outside text: small inputs at once, large ones in a process of their own, which
neither holds the event loop nor Python's global lock and is killed past its time budget.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import signal
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

import structlog
from anyio import BrokenWorkerProcess, CapacityLimiter, to_process

from memory_api.core.errors import HanseiError

T = TypeVar("T")

MAX_INLINE_SIZE = 256 * 1024
"""Characters of an input that is processed at once. Hostile ones take 25 ms; a new process takes
300 ms of CPU to import what it executes.
"""
WORK_SECONDS = 30.0
"""Time budget of a large input."""
MAX_PROCESS_BYTES = 1024**3
"""Memory of a process for a large input."""
MAX_PROCESSES = 8
"""Processes for large inputs, of one API or worker process. The limit of concurrent runs is lower,
so that one slow input does not delay others. An idle process ends after 5 minutes."""
MAX_PROCESSES_OF_TENANT = 4
"""Of these. The other ones are free for other tenants, whatever one sends."""
CHILD_PRIORITY = 15
"""Unix niceness of these processes, so that requests and other runs come first."""

log = structlog.get_logger()


class WorkTimeout(HanseiError):
    """The analysis of this trace took too long and was stopped. Send a smaller trace."""

    status, code = 422, "analysis_timeout"


class TraceTooLarge(HanseiError):
    """The events of this trace are too large to learn from. Send several smaller traces."""

    status, code = 422, "trace_too_large"


class ProcessIsolation:
    """Whether this process may start others. Off by default: a program that uses the library need
    not expect to be imported again. `hansei serve` and `hansei worker` switch it on.
    """

    def __init__(self) -> None:
        self.is_enabled = False
        self._limiter: CapacityLimiter | None = None
        self._by_tenant: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @property
    def limiter(self) -> CapacityLimiter:
        self._limiter = self._limiter or CapacityLimiter(MAX_PROCESSES)
        return self._limiter

    def of_tenant(self, tenant_id: UUID | str | None) -> asyncio.Semaphore:
        """Limits the processes of a tenant."""
        tenant = str(tenant_id)
        found = self._by_tenant.get(tenant) or asyncio.Semaphore(MAX_PROCESSES_OF_TENANT)
        self._by_tenant[tenant] = found
        return found


ISOLATION = ProcessIsolation()


async def run_isolated(
    work: Callable[[], T],
    size: int,
    tenant_id: UUID | str | None,
    *,
    max_inline_size: int | None = None,
    seconds: float | None = None,
) -> T:
    """Run `work`, a picklable pure function on an input of a tenant of about `size` characters.
    `max_inline_size` and `seconds` replace `MAX_INLINE_SIZE` and `WORK_SECONDS` for slow work.

    Raises `WorkTimeout` if a large input takes longer than its time budget or more memory than
    `MAX_PROCESS_BYTES`, or if its process dies.
    """
    if size <= (MAX_INLINE_SIZE if max_inline_size is None else max_inline_size):
        return work()
    seconds = WORK_SECONDS if seconds is None else seconds
    try:
        async with asyncio.timeout(seconds):
            if not ISOLATION.is_enabled:
                return await asyncio.to_thread(work)
            async with ISOLATION.of_tenant(tenant_id):
                try:
                    return await _run_in_process(work, seconds)
                except BrokenWorkerProcess:  # an idle process may have been killed before
                    return await _run_in_process(work, seconds)
    except TimeoutError as error:
        log.warning("analysis_stopped", size=size, seconds=seconds)
        raise WorkTimeout from error
    except MemoryError as error:
        log.warning("analysis_out_of_memory", size=size)
        raise WorkTimeout(
            "The analysis of this trace needs too much memory. Send a smaller trace."
        ) from error
    except BrokenWorkerProcess as error:
        log.warning("analysis_process_died", size=size)
        raise WorkTimeout(
            "The process that analyzed this trace ended early. Send a smaller trace."
        ) from error


async def _run_in_process(work: Callable[[], T], seconds: float) -> T:
    return await to_process.run_sync(
        _run_in_child, work, seconds, cancellable=True, limiter=ISOLATION.limiter
    )


def _run_in_child(work: Callable[[], T], seconds: float) -> T:
    """Run `work` with low priority and limited memory. The alarm ends the process if its parent is
    gone and cannot kill it.
    """
    os.nice(max(0, CHILD_PRIORITY - os.nice(0)))  # only root may go back
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_PROCESS_BYTES, MAX_PROCESS_BYTES))
    signal.alarm(math.ceil(seconds) + 5)
    try:
        return work()
    finally:
        signal.alarm(0)
