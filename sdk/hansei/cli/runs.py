"""`hansei run`: list, show and retry runs."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from hansei import models
from hansei.cli.learned import learned_texts
from hansei.cli.options import AsJson, Project, RunState
from hansei.cli.terminal import (
    format_age,
    format_error,
    open_client,
    print_json,
    print_message,
    print_text,
)
from hansei.models import Run
from hansei.nothing_learned import why_run_found_nothing

run_commands = typer.Typer(name="run", help="List, show and retry runs.", no_args_is_help=True)


@run_commands.command("list")
def list_runs(
    state: Annotated[
        list[RunState] | None, typer.Option(help="Only this state. Repeatable.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind, for example reflect.")] = None,
    project: Project = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    with open_client() as client:
        states = cast("list[models.RunState]", [each.value for each in state or ()])
        runs = list(client.runs.list(state=states, kind=kind, project_id=project, limit=limit))
    _print_runs(runs, as_json)


@run_commands.command("show")
def show_run(run_id: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Show a run with its error and the run that follows it."""
    with open_client() as client:
        run = client.runs.get(run_id)
    if as_json:
        print_json(run)
        return
    _print_run(run)
    if reason := why_run_found_nothing(run):
        print_text(reason, indent=2)
    for text in learned_texts([run]):
        print_text(text, indent=2)
    fields = {
        "project": run.project_id,
        "engine": run.engine,
        "started": run.started_at,
        "finished": run.finished_at,
        "next run": run.next_run_id,
    }
    for name, value in fields.items():
        if value:
            print_text(f"{name}: {value}", style="dim")


@run_commands.command("retry")
def retry_runs(
    run_ids: Annotated[list[str], typer.Argument(metavar="ID...")], as_json: AsJson = False
) -> None:
    """Queue dead or failed runs again."""
    with open_client() as client:
        runs = [client.runs.retry(run_id) for run_id in run_ids]
    _print_runs(runs, as_json)


def _print_runs(runs: list[Run], as_json: bool) -> None:
    if as_json:
        print_json({"items": runs})
        return
    if not runs:
        print_message("No runs found.")
    for run in runs:
        _print_run(run)


def _print_run(run: Run) -> None:
    attempt = f"attempt {run.attempt_count} of {run.max_attempts}"
    facts = [run.id, run.kind, run.state, format_age(run.created_at), attempt]
    facts += [f"trace {run.trace_id}"] if run.trace_id else []
    print_text(" · ".join(facts), style="red" if run.state in ("failed", "dead") else "")
    if run.error:
        print_text(format_error(run.error), indent=2)
