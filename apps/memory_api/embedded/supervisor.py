"""Runs the child processes of `hansei up`: restarts what crashes, drains in order, leaves none."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from apps.memory_api.embedded.leash import LEASH_FD

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_PRESS_SECONDS = 0.3  # Ctrl-C below a wrapper (make, uv) may arrive twice: once from each


@dataclass(frozen=True)
class Child:
    """One process to keep running. `env` is added to ours; after SIGTERM it has `drain_seconds`."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    drain_seconds: float = 10.0


@dataclass(frozen=True)
class Backoff:
    """Seconds before a crashed child is started again: they double, and reset after `calm` up."""

    first: float = 1.0
    longest: float = 30.0
    calm: float = 60.0


class Supervisor:
    """Keeps `children` running until a signal or stop().

    The first SIGINT, SIGTERM or SIGHUP drains them one after another in the order given; the second
    kills them all at once. `report` gets one line per crash. `patrol`, where the database is
    repaired, is awaited every `patrol_seconds`; when it raises, that is reported and it goes on.
    """

    def __init__(
        self,
        children: Sequence[Child],
        *,
        report: Callable[[str], None],
        patrol: Callable[[], Awaitable[object]] | None = None,
        patrol_seconds: float = 2.0,
        backoff: Backoff | None = None,
    ) -> None:
        self._children = children
        self._report = report
        self._patrol = patrol
        self._patrol_seconds = patrol_seconds
        self._backoff = backoff or Backoff()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopped_at = 0.0

    def stop(self) -> None:
        """Ask for a drain; asked a second time, for an end at once."""
        now = asyncio.get_running_loop().time()
        if not self._stop.is_set():
            self._stopped_at = now
            self._stop.set()
        elif now - self._stopped_at > _SAME_PRESS_SECONDS:
            self._hurry.set()

    async def run(self) -> bool:
        """Returns after all children have left: True when they drained, False when cut short.

        Raises OSError when a child cannot be started at all; the others are drained first.
        """
        loop = asyncio.get_running_loop()
        leash, held = os.pipe()  # `held` is not inherited: it closes when we end, however we end
        for one in SIGNALS:
            loop.add_signal_handler(one, self.stop)
        keepers = [_Keeper(child, self._report, self._backoff, leash) for child in self._children]
        keeping = [asyncio.create_task(keeper.keep()) for keeper in keepers]
        patrolling = asyncio.create_task(self._go_round())
        try:
            await _first_of(self._stop.wait(), *keeping)
            self._stop.set()
            await self._drain(keepers)
            await asyncio.gather(*keeping)
            await _first_of(patrolling, self._hurry.wait())
            return not self._hurry.is_set()
        finally:
            for keeper in keepers:
                keeper.kill()
            patrolling.cancel()
            for one in SIGNALS:
                loop.remove_signal_handler(one)
            os.close(held)
            os.close(leash)

    async def _drain(self, keepers: Sequence[_Keeper]) -> None:
        async def in_order() -> None:
            for keeper in keepers:
                await keeper.drain()

        await _first_of(in_order(), self._hurry.wait())
        if self._hurry.is_set():
            for keeper in keepers:
                keeper.kill()

    async def _go_round(self) -> None:
        while self._patrol and not await _happens(self._stop, self._patrol_seconds):
            try:
                await self._patrol()
            except Exception as error:
                self._report(f"patrol: {error}")


class _Keeper:
    """Keeps one child running until told to let it go."""

    def __init__(
        self, child: Child, report: Callable[[str], None], backoff: Backoff, leash: int
    ) -> None:
        self._child, self._report, self._backoff, self._leash = child, report, backoff, leash
        self._leave, self._gone = asyncio.Event(), asyncio.Event()
        self._killed = False
        self._process: Process | None = None

    async def keep(self) -> None:
        try:
            await self._keep()
        finally:
            self._gone.set()

    async def _keep(self) -> None:
        loop, delay = asyncio.get_running_loop(), self._backoff.first
        while not self._leave.is_set():
            since = loop.time()
            status = await self._run_once()
            if self._leave.is_set():
                return
            up = loop.time() - since
            if up >= self._backoff.calm:
                delay = self._backoff.first
            self._report(
                f"{self._child.name} {_how(status)} after {up:.0f} s; again in {delay:g} s"
            )
            await _happens(self._leave, delay)
            delay = min(2 * delay, self._backoff.longest)

    async def _run_once(self) -> int:
        process = self._process = await asyncio.create_subprocess_exec(
            *self._child.argv,
            stdin=DEVNULL,
            env={**os.environ, **self._child.env, LEASH_FD: str(self._leash)},
            pass_fds=[self._leash],
            start_new_session=True,
        )
        if self._killed:  # told so while it was being started
            self.kill()
        elif self._leave.is_set():
            process.terminate()
        return await process.wait()

    async def drain(self) -> None:
        """SIGTERM, and SIGKILL to whatever of its session is left after its time."""
        self._leave.set()
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
        if not await _happens(self._gone, self._child.drain_seconds):
            self._report(
                f"{self._child.name} did not leave in {self._child.drain_seconds:g} s: killed"
            )
            self.kill()
            await self._gone.wait()

    def kill(self) -> None:
        self._leave.set()
        self._killed = True
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for `event` at most so long."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def _first_of(*awaitables: Awaitable[object]) -> None:
    """Wait for the first; what was made for this wait alone is cancelled, tasks given are not."""
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for given, task in zip(awaitables, tasks, strict=True):
            if given is not task:
                task.cancel()


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
