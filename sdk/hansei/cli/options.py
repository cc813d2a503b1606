"""Options and arguments that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Annotated, Any

import typer

from hansei._operations import PointInTime
from hansei.coding_agents.hook_settings import require_inside
from hansei.models import Fusion, Match

STDIN = "-"
BUFFER_BYTES = 64 * 1024

POINT_IN_TIME_HELP = "A version number or an ISO 8601 time."


def parse_point_in_time(text: str) -> PointInTime:
    """Raises `BadParameter`."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        message = f"'{text}' is not a version number or an ISO 8601 time."
        raise typer.BadParameter(message) from None
    return text


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Project = Annotated[str | None, typer.Option(help="ID of the project.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only this tag. Repeatable.")]

PlaybookName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the playbook.")]
BulletKey = Annotated[str, typer.Argument(metavar="KEY", help="For example mis-00001.")]
Sections = Annotated[
    list[str] | None, typer.Option("--section", help="Section name or slug. Repeatable.")
]
AsOf = Annotated[
    str | None, typer.Option(parser=parse_point_in_time, metavar="VERSION", help=POINT_IN_TIME_HELP)
]
Reason = Annotated[str | None, typer.Option(help="Stored in the history.")]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number of items.")]
TopK = Annotated[int, typer.Option(min=0, max=1000, help="Maximum number of results.")]
MinMatch = Annotated[Match | None, typer.Option(help="Only results that fit at least this well.")]
HowCombined = Annotated[Fusion | None, typer.Option(help="How the scores are combined.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show the terms of each score.")]


# typer accepts an enum for a repeatable option, but no literal type.


class MemoryKind(StrEnum):
    """The same values as `hansei.models.MemoryKind`."""

    REFLECTION = "reflection"
    STRATEGY = "strategy"
    INSIGHT = "insight"
    BULLET = "bullet"
    VERDICT = "verdict"
    EPISODE = "episode"
    CHUNK = "chunk"


class RunState(StrEnum):
    """The same values as `hansei.models.RunState`."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    DEAD = "dead"


def check_readable(name: str) -> str:
    """Callback of a file argument; `-` is standard input. Raises `BadParameter`.

    The argument is a string because typer's own check of a `Path` fails for `-`.
    """
    if name != STDIN:
        if Path(name).is_dir():
            raise typer.BadParameter(f"'{name}' is a directory.")
        if not os.access(name, os.R_OK):
            raise typer.BadParameter(f"'{name}' does not exist or is not readable.")
    return name


@contextmanager
def open_input(name: str) -> Generator[BufferedReader[Any]]:
    """Raises `BadRequestError` for a link out of the current folder."""
    if name != STDIN:
        require_inside(Path(name))
        with BufferedReader(FileIO(name), BUFFER_BYTES) as file:
            yield file
        return
    source = BufferedReader(sys.stdin.buffer, BUFFER_BYTES)  # pyright: ignore[reportArgumentType]
    try:
        yield source
    finally:
        source.detach()  # does not close standard input
