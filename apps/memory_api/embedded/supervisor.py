"""Runs the child processes of `hansei up`: restarts crashed ones and stops all in order.

The supervisor holds the write end of a pipe and the children hold the read end. No process writes
to it. When the supervisor ends for any reason, the pipe closes, and each child shuts down
gracefully.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import threading
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby

PARENT_PIPE_FD = "HANSEI_PARENT_PIPE_FD"
GRACE_SECONDS = 30.0


@contextmanager
def watch_parent(
    stop: asyncio.Event, *, signals: bool = True, grace_seconds: float = GRACE_SECONDS
) -> Generator[None]:
    """Set `stop` on SIGTERM, on SIGINT, and when the supervisor ends. Needs a running event loop.

    Without HANSEI_PARENT_PIPE_FD there is no supervisor to watch. Pass `signals=False` for a server
    with its own signal handlers. `grace_seconds` after the supervisor's end, the process exits even
    if its event loop hangs, because there is no supervisor that could kill it.
    """
    loop, pipe = asyncio.get_running_loop(), _take_parent_pipe()
    if pipe is not None:
        threading.Thread(
            target=_wait_for_parent,
            args=(pipe, loop, stop, grace_seconds),
            name="parent-pipe",
            daemon=True,
        ).start()
    with _handle_signals((signal.SIGTERM, signal.SIGINT) if signals else (), stop.set):
        yield


@contextmanager
def _handle_signals(
    numbers: Sequence[signal.Signals], handler: Callable[[], None]
) -> Generator[None]:
    """Let the running event loop call `handler` for these signals until the block ends. Then they
    have their earlier handlers again: the event loop alone would restore the default action, and
    a second signal would end the process before it has stopped its database.
    """
    loop = asyncio.get_running_loop()
    previous = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        for number, earlier in previous.items():
            loop.remove_signal_handler(number)
            signal.signal(number, earlier)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def _take_parent_pipe() -> int | None:
    """Read the pipe's file descriptor and remove it from the environment, so that a child of this
    process does not use it.
    """
    value = os.environ.pop(PARENT_PIPE_FD, None)
    if value is None:
        return None
    try:
        pipe = int(value)
        os.set_inheritable(pipe, False)
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            return pipe
    except (ValueError, OSError) as error:
        raise RuntimeError(f"Invalid {PARENT_PIPE_FD}={value}: {error}. Unset it.") from error
    raise RuntimeError(f"{PARENT_PIPE_FD}={value} is not a pipe. Unset it.")


def _wait_for_parent(
    pipe: int, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, grace_seconds: float
) -> None:
    os.read(pipe, 1)  # returns when the supervisor, the only writer, ends
    with suppress(RuntimeError):  # the loop is closed, so the process is already shutting down
        loop.call_soon_threadsafe(stop.set)
    time.sleep(grace_seconds)
    os._exit(1)


INVALID_CONFIGURATION_STATUS = 2
"""Exit status of a child whose configuration is wrong. A restart would not help."""


class ChildMisconfigured(Exception):
    """A child ended because its configuration is wrong. It has printed the reason."""


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REPEATED_SIGNAL_SECONDS = 0.3  # one Ctrl-C may arrive twice, also through a wrapper (make, uv)


@dataclass(frozen=True)
class ChildProcess:
    """A process to keep running. `env` is added to the environment. It is killed `drain_seconds`
    after SIGTERM. It inherits the file descriptors `pass_fds`. It starts when `start_after` is set.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    drain_seconds: float = 10.0
    pass_fds: Sequence[int] = ()
    start_after: asyncio.Event | None = None


@dataclass(frozen=True)
class RestartBackoff:
    """Delay before a crashed child is restarted. It doubles with each crash, up to `max_seconds`,
    and is reset after the child has run for `reset_after_seconds`.
    """

    first_seconds: float = 1.0
    max_seconds: float = 30.0
    reset_after_seconds: float = 60.0


class Supervisor:
    """Keeps `children` running until a signal or stop().

    The first SIGINT, SIGTERM or SIGHUP drains them one after the other, in the given order, and
    neighbors of the same name together; the second kills all of them. `report` gets one line per
    crash. `health_check` runs every `health_check_seconds`; its errors are reported.
    """

    def __init__(
        self,
        children: Sequence[ChildProcess],
        *,
        report: Callable[[str], None],
        health_check: Callable[[], Awaitable[object]] | None = None,
        health_check_seconds: float = 2.0,
        backoff: RestartBackoff | None = None,
    ) -> None:
        self._children = children
        self._report = report
        self._health_check = health_check
        self._health_check_seconds = health_check_seconds
        self._backoff = backoff or RestartBackoff()
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()
        self._stopped_at = 0.0

    def stop(self) -> None:
        """Drain the children. The second call kills them."""
        now = asyncio.get_running_loop().time()
        if not self._stop.is_set():
            self._stopped_at = now
            self._stop.set()
        elif now - self._stopped_at > _REPEATED_SIGNAL_SECONDS:
            self._kill.set()

    async def run(self) -> bool:
        """Returns after all children have ended: True if they were drained, False if killed.

        Raises OSError if a child cannot be started, and ChildMisconfigured if it ended with
        INVALID_CONFIGURATION_STATUS; the others are drained first.
        """
        # Children do not inherit the write end, so it closes when this process ends.
        read_end, write_end = os.pipe()
        keepers = [
            _ProcessKeeper(child, self._report, self._backoff, read_end) for child in self._children
        ]
        with _handle_signals(SIGNALS, self.stop):
            keeper_tasks = [asyncio.create_task(keeper.run()) for keeper in keepers]
            health_task = asyncio.create_task(self._check_health())
            try:
                await _wait_for_first(self._stop.wait(), *keeper_tasks)
                self._stop.set()
                await self._drain(keepers)
                await asyncio.gather(*keeper_tasks)
                await _wait_for_first(health_task, self._kill.wait())
                return not self._kill.is_set()
            finally:
                for keeper in keepers:
                    keeper.kill()
                health_task.cancel()
                os.close(write_end)
                os.close(read_end)

    async def _drain(self, keepers: Sequence[_ProcessKeeper]) -> None:
        async def drain_in_order() -> None:
            for _, group in groupby(keepers, key=lambda keeper: keeper.name):
                await asyncio.gather(*(keeper.drain() for keeper in group))

        await _wait_for_first(drain_in_order(), self._kill.wait())
        if self._kill.is_set():
            for keeper in keepers:
                keeper.kill()

    async def _check_health(self) -> None:
        while self._health_check and not await _is_set_within(
            self._stop, self._health_check_seconds
        ):
            try:
                await self._health_check()
            except Exception as error:
                self._report(f"health check failed: {error}")


class _ProcessKeeper:
    """Keeps one child running until it is drained or killed."""

    def __init__(
        self,
        child: ChildProcess,
        report: Callable[[str], None],
        backoff: RestartBackoff,
        parent_pipe: int,
    ) -> None:
        self._child, self._report, self._backoff = child, report, backoff
        self._parent_pipe = parent_pipe
        self._stop, self._ended = asyncio.Event(), asyncio.Event()
        self._is_killed = False
        self._process: Process | None = None

    @property
    def name(self) -> str:
        return self._child.name

    async def run(self) -> None:
        try:
            await self._run_until_stopped()
        finally:
            self._ended.set()

    async def _run_until_stopped(self) -> None:
        loop, delay = asyncio.get_running_loop(), self._backoff.first_seconds
        if self._child.start_after is not None:
            await _wait_for_first(self._child.start_after.wait(), self._stop.wait())
        while not self._stop.is_set():
            started_at = loop.time()
            status = await self._run_once()
            if self._stop.is_set():
                return
            if status == INVALID_CONFIGURATION_STATUS:
                raise ChildMisconfigured(f"The {self._child.name} process cannot start.")
            uptime = loop.time() - started_at
            if uptime >= self._backoff.reset_after_seconds:
                delay = self._backoff.first_seconds
            self._report(
                f"{self._child.name} {_describe_exit(status)} after {uptime:.0f} s."
                f" Restarting in {delay:g} s."
            )
            await _is_set_within(self._stop, delay)
            delay = min(2 * delay, self._backoff.max_seconds)

    async def _run_once(self) -> int:
        process = self._process = await asyncio.create_subprocess_exec(
            *self._child.argv,
            stdin=DEVNULL,
            env={**os.environ, **self._child.env, PARENT_PIPE_FD: str(self._parent_pipe)},
            pass_fds=[self._parent_pipe, *self._child.pass_fds],
            start_new_session=True,
        )
        if self._is_killed:  # while the process was starting
            self.kill()
        elif self._stop.is_set():
            self._terminate()
        return await process.wait()

    def _terminate(self) -> None:
        """`Process.terminate` would collect the status of a child that has just ended. asyncio also
        waits for it, and would print a warning and report another status.
        """
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)

    async def drain(self) -> None:
        """Send SIGTERM, and SIGKILL to the process group after `drain_seconds`."""
        self._stop.set()
        self._terminate()
        if not await _is_set_within(self._ended, self._child.drain_seconds):
            self._report(
                f"{self._child.name} did not stop within {self._child.drain_seconds:g} s"
                " and was killed."
            )
            self.kill()
            await self._ended.wait()

    def kill(self) -> None:
        self._stop.set()
        self._is_killed = True
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait up to `seconds` for `event`."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def _wait_for_first(*awaitables: Awaitable[object]) -> None:
    """Wait until one is done. Cancels the coroutines among the others, but not the tasks."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for given, task in zip(awaitables, tasks, strict=True):
            if given is not task:
                task.cancel()


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
