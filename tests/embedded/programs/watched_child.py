"""A process that watches the pipe to its parent. With `grandchild`, it prints what a grandchild
inherits."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from memory_api.embedded.supervisor import PARENT_PIPE_FD, watch_parent

LOOK = f"""
import os, stat
pipes = [fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{{fd}}")
         and stat.S_ISFIFO(os.fstat(fd).st_mode)]
print("grandchild:", os.environ.get("{PARENT_PIPE_FD}"), pipes)
"""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main() -> None:
    stop = asyncio.Event()
    with watch_parent(stop):
        say("up")
        if "grandchild" in sys.argv:
            # as a careless library would start it: every inheritable descriptor goes along
            subprocess.run([sys.executable, "-c", LOOK], close_fds=False, check=True)
        await stop.wait()
        say("stopped")


asyncio.run(main())
