"""`hansei reflect`: traces in, lessons out, with a progress bar in between."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hansei.client import Hansei
from hansei.commands.files import STDIN, opened, readable_file
from hansei.commands.report import show_report
from hansei.commands.session import reflect_session
from hansei.errors import HanseiError
from hansei.learnt import Learnt
from hansei.sessions import is_session, read_session
from hansei.terminal import connect, count, err, say, show_json

STILL = 20.0
"""Seconds without a single trace done, after which we ask whether anybody works at all."""


@dataclass(frozen=True)
class Task:
    """What to send, and where it goes."""

    source: BinaryIO
    size: int | None
    project: str | None
    playbook: str | None


def reflect(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Traces: one a line, a list, or a single one as JSON; or the session file of a "
            "coding agent. `-` is stdin.",
            callback=readable_file,
        ),
    ],
    project: Annotated[str | None, typer.Option(help="The project they belong to.")] = None,
    playbook: Annotated[str | None, typer.Option(help="The playbook they are to teach.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Send only; the reflections are made later.")
    ] = False,
) -> None:
    """Learn from the traces of a file, and print what was learnt: reflections, strategies and, with
    a playbook, what became of its bullets. A session file is reflected on as one run.

    What is here already is left alone, so a broken run is just repeated.
    """
    started = time.monotonic()
    learnt = Learnt()
    with connect() as client, opened(file) as source:
        if is_session(source.peek()):
            reflect_session(
                client,
                read_session(source.read()),
                project=project,
                playbook=playbook,
                wait=not no_wait,
                as_json=as_json,
            )
            return
        size = Path(file).stat().st_size if file != STDIN else None
        waiting = _work(client, Task(source, size, project, playbook), learnt, wait=not no_wait)
    seconds = time.monotonic() - started
    if as_json:
        show_json(learnt.as_json(seconds=seconds, waiting=waiting))
    else:
        show_report(learnt, seconds, waiting)
    if not learnt.good or learnt.sent == 0:
        raise typer.Exit(1)


def _work(client: Hansei, task: Task, learnt: Learnt, *, wait: bool) -> set[str]:
    """Send, wait and collect. Returns the runs that are still to be done when nobody waited."""
    bars = Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        TimeElapsedColumn(),
        console=err,
        refresh_per_second=4,  # the service needs the processor more than the bar does
    )
    try:
        with bars:
            _send(client, task, learnt, bars)
            if not wait:
                return learnt.queued
            wanted = _wait(client, task, learnt, bars)
    except KeyboardInterrupt:
        say(f"Stopped. {count(learnt.new, 'trace')} stored; the work goes on: `hansei runs`.")
        raise typer.Exit(1) from None
    except HanseiError:
        if learnt.sent:
            say(f"{count(learnt.sent, 'trace')} were sent; run it again to go on from there.")
        raise
    for run in client.outcomes(wanted, project_id=task.project):
        learnt.add_run(run)
    return set()


def _send(client: Hansei, task: Task, learnt: Learnt, bars: Progress) -> None:
    bar = bars.add_task("Sending", total=task.size, told="")
    answers = client.send_traces(
        task.source, reflect="always", project_id=task.project, playbook=task.playbook
    )
    for answer in answers:
        learnt.add_sent(answer)
        place = task.source.tell() if task.size else None
        bars.update(bar, completed=place, told=count(learnt.sent, "trace"))
    bars.update(bar, total=task.size or 1, completed=task.size or 1)


def _wait(client: Hansei, task: Task, learnt: Learnt, bars: Progress) -> set[str]:
    """Wait until the new traces are learnt from, and those sent earlier that are under way."""
    wanted = set(learnt.queued)
    bar = bars.add_task("Learning", told="", visible=False)
    patience = Patience()
    for left in client.unsettled(wanted | learnt.earlier, project_id=task.project):
        wanted |= left
        done, total = len(wanted - left), len(wanted)
        bars.update(
            bar, completed=done, total=total, told=f"{done} of {total}", visible=bool(wanted)
        )
        if patience.is_over(done):
            say("Nothing has moved for a while. Is a worker running? See `hansei runs`.")
    return wanted


class Patience:
    """Says once, when nothing has moved for too long, that it is over."""

    def __init__(self, seconds: float = STILL) -> None:
        self._seconds = seconds
        self._done = -1
        self._since = time.monotonic()
        self._told = False

    def is_over(self, done: int) -> bool:
        if done != self._done:
            self._done, self._since = done, time.monotonic()
        over = not self._told and time.monotonic() - self._since > self._seconds
        self._told = self._told or over
        return over
