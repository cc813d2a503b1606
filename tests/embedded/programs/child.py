"""A supervised child. Appends "<name> <what>" to a file: up <pid>, leaving, left.

Arguments: the file, its name, and what to do: `work` until told to leave, `linger` (leaves 0.5 s
later), `stubborn` (never leaves), `crash` (ends at once with status 3), `hang` (blocks its loop).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from memory_api.embedded.supervisor import watch_parent


def note(what: str) -> None:
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{sys.argv[2]} {what}\n")


async def main(behavior: str) -> None:
    stop = asyncio.Event()
    with watch_parent(stop, grace_seconds=float(os.environ.get("GRACE", "30"))):
        note(f"up {os.getpid()}")
        if behavior == "crash":
            sys.exit(3)
        if behavior == "hang":
            time.sleep(600)
        await stop.wait()
        note("leaving")
        if behavior == "stubborn":
            await asyncio.sleep(600)
        if behavior == "linger":
            await asyncio.sleep(0.5)
        note("left")


asyncio.run(main(sys.argv[3]))
