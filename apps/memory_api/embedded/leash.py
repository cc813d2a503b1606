"""The child's end of the supervisor's leash.

The supervisor alone holds the write end of a pipe, its children hold the read end, and nobody ever
writes. So the pipe closes when the supervisor ends, however it ends, and each child leaves in good
order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

LEASH_FD = "HANSEI_LEASH_FD"
GRACE_SECONDS = 30.0


@contextmanager
def leashed(
    stop: asyncio.Event, *, signals: bool = True, grace_seconds: float = GRACE_SECONDS
) -> Generator[None]:
    """Set `stop` on SIGTERM, on SIGINT, and when the supervisor is gone. Enter in a running loop.

    Without HANSEI_LEASH_FD there is no supervisor, and the signals alone count. `signals=False`
    leaves them to a server that handles its own. A process that is still there `grace_seconds`
    after its supervisor's death ends itself, even if its loop hangs: nobody is left to kill it.
    """
    loop, pipe = asyncio.get_running_loop(), _take_leash()
    caught = (signal.SIGTERM, signal.SIGINT) if signals else ()
    for one in caught:
        loop.add_signal_handler(one, stop.set)
    if pipe is not None:
        threading.Thread(
            target=_hold, args=(pipe, loop, stop, grace_seconds), name="leash", daemon=True
        ).start()
    try:
        yield
    finally:
        for one in caught:
            loop.remove_signal_handler(one)


def _take_leash() -> int | None:
    """The pipe, taken out of the environment so that no grandchild mistakes it for its own."""
    value = os.environ.pop(LEASH_FD, None)
    if value is None:
        return None
    try:
        pipe = int(value)
        os.set_inheritable(pipe, False)
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            return pipe
    except (ValueError, OSError) as error:
        raise RuntimeError(f"{LEASH_FD}={value}: {error}; unset it") from error
    raise RuntimeError(f"{LEASH_FD}={value} is not a pipe; unset it")


def _hold(pipe: int, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, grace: float) -> None:
    os.read(pipe, 1)  # returns when the last writer, the supervisor, is gone
    with suppress(RuntimeError):  # the loop is closed: we are leaving already
        loop.call_soon_threadsafe(stop.set)
    time.sleep(grace)
    os._exit(1)
