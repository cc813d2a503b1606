"""A supervisor of pupils. Arguments: the pupils' file, then name:manner:drain_seconds of each.

Says each report line, and at the end whether it drained.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from apps.memory_api.embedded.supervisor import Backoff, Child, Supervisor


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def child(word: str) -> Child:
    name, manner, seconds = word.split(":")
    pupil = str(Path(__file__).with_name("pupil.py"))
    argv = [sys.executable, pupil, sys.argv[1], name, manner]
    return Child(name, argv, drain_seconds=float(seconds))


async def main() -> None:
    children = [child(word) for word in sys.argv[2:]]
    supervisor = Supervisor(children, report=say, backoff=Backoff(first=0.05, longest=0.2))
    say("drained" if await supervisor.run() else "cut short")


asyncio.run(main())
