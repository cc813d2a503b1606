"""`hansei run`: list, show and retry runs."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from hansei.cli.commands import Client, Output, command, listing
from hansei.cli.learned import learned_texts
from hansei.cli.options import Limit, Project, RunState
from hansei.cli.terminal import format_age, format_error, print_fields, print_text
from hansei.models import Run
from hansei.nothing_learned import why_run_found_nothing

run_commands = typer.Typer(name="run", help="List, show and retry runs.", no_args_is_help=True)
NOT_FOUND = "No runs found."


@command(run_commands, "list")
def list_runs(
    client: Client,
    state: Annotated[
        list[RunState] | None, typer.Option(help="Only this state. Repeatable.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind, for example reflect.")] = None,
    project: Project = None,
    limit: Limit = 20,
) -> Output:
    """List runs, newest first."""
    runs = client.runs.list(state=cast(Any, state), kind=kind, project_id=project, limit=limit + 1)
    return listing(runs, NOT_FOUND, each=_print_run, limit=limit)


@command(run_commands, "show")
def show_run(client: Client, run_id: Annotated[str, typer.Argument(metavar="ID")]) -> Output:
    """Show a run with its error and the run that follows it."""
    run = client.runs.get(run_id)

    def show() -> None:
        _print_run(run)
        if reason := why_run_found_nothing(run):
            print_text(reason, indent=2)
        for text in learned_texts([run]):
            print_text(text, indent=2)
        print_fields(
            {
                "project": run.project_id,
                "engine": run.engine,
                "started": run.started_at,
                "finished": run.finished_at,
                "next run": run.next_run_id,
            },
            style="dim",
        )

    return Output(run, show)


@command(run_commands, "retry")
def retry_runs(
    client: Client, run_ids: Annotated[list[str], typer.Argument(metavar="ID...")]
) -> Output:
    """Queue dead or failed runs again."""
    return listing([client.runs.retry(run_id) for run_id in run_ids], NOT_FOUND, each=_print_run)


def _print_run(run: Run) -> None:
    attempt = f"attempt {run.attempt_count} of {run.max_attempts}"
    facts = [run.id, run.kind, run.state, format_age(run.created_at), attempt]
    facts += [f"trace {run.trace_id}"] if run.trace_id else []
    print_text(" · ".join(facts), style="red" if run.state in ("failed", "dead") else "")
    if run.error:
        print_text(format_error(run.error), indent=2)
