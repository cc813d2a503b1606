"""`hansei runs`: what is being worked on, what failed and why."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from hansei.answers import Run
from hansei.commands.choices import State
from hansei.routes import PAGE
from hansei.terminal import ago, cause, connect, say, show, show_json


def runs(
    state: Annotated[
        list[State] | None, typer.Option(help="Only in this state; may be repeated.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind of work, as `reflect`.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    retry: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Queue this dead or failed run again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """List work, newest first, or queue dead and failed runs again."""
    with connect() as client:
        if retry:
            found = [client.retry_run(run_id) for run_id in retry]
        else:
            every = client.runs(state=state or (), kind=kind, limit=min(limit, PAGE))
            found = list(islice(every, limit))
    if as_json:
        show_json({"items": found})
        return
    if not found:
        say("No such work.")
    for run in found:
        _show_run(run)


def _show_run(run: Run) -> None:
    tried = f"try {run['attempts']} of {run['max_attempts']}"
    facts = [run["id"], run["kind"], run["state"], ago(run["created_at"]), tried]
    facts += [f"trace {run['trace_id']}"] if run["trace_id"] else []
    show(" · ".join(facts), style="red" if run["state"] in ("failed", "dead") else "")
    if run["error"]:
        show(cause(run["error"]), indent=2)
