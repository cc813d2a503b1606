"""A supervisor. Arguments: the file that its children write, then name:behavior:drain_seconds of
each child.

Says each report line, and at the end whether it drained.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from memory_api.embedded.supervisor import ChildProcess, RestartBackoff, Supervisor


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def child(word: str) -> ChildProcess:
    name, behavior, seconds = word.split(":")
    program = str(Path(__file__).with_name("child.py"))
    argv = [sys.executable, program, sys.argv[1], name, behavior]
    return ChildProcess(name, argv, drain_seconds=float(seconds))


async def main() -> None:
    children = [child(word) for word in sys.argv[2:]]
    supervisor = Supervisor(children, report=say, backoff=RestartBackoff(0.05, max_seconds=0.2))
    say("drained" if await supervisor.run() else "cut short")


asyncio.run(main())
