"""`hansei trace`: list, show and delete traces, and record their outcomes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from hansei.cli.learned import print_learned
from hansei.cli.options import AsJson, Outcome, Project
from hansei.cli.terminal import (
    format_age,
    format_count,
    format_error,
    open_client,
    print_json,
    print_message,
    print_text,
    truncate,
    truncate_line,
)
from hansei.errors import NotFoundError
from hansei.models import Trace, TraceEvent, TraceWithEvents

if TYPE_CHECKING:
    from hansei.client import Hansei

MAX_EVENT_LENGTH = 400
MAX_TASK_LENGTH = 100

trace_commands = typer.Typer(
    name="trace",
    help="List, show and delete traces, and record their outcomes.",
    no_args_is_help=True,
)


TraceId = Annotated[str, typer.Argument(metavar="ID", help="ID or `external_id` of the trace.")]
TraceProject = Annotated[str | None, typer.Option("--project", help="Project of an `external_id`.")]


@trace_commands.command("list")
def list_traces(
    playbook: Annotated[str | None, typer.Option(help="Only traces of this playbook.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only this outcome.")] = None,
    project: Project = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of traces.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List traces, newest first."""
    with open_client() as client:
        items = client.traces.list(
            playbook=playbook,
            outcome=None if outcome is None else outcome.value,
            project_id=project,
            limit=limit,
        )
        traces = list(items)
    if as_json:
        print_json({"items": traces})
        return
    if not traces:
        print_message("No traces found.")
    for trace in traces:
        _print_line(trace)


def _print_line(trace: Trace) -> None:
    facts = [
        trace.id,
        trace.outcome or "no outcome",
        trace.state,
        format_age(trace.created_at),
        format_count(trace.event_count, "event"),
        trace.playbook,
    ]
    print_text(" · ".join(fact for fact in facts if fact), style="bold")
    if trace.task_description:
        print_text(truncate_line(trace.task_description, MAX_TASK_LENGTH), indent=2)


@trace_commands.command("show")
def show_trace(
    trace_id: TraceId,
    project: TraceProject = None,
    full: Annotated[bool, typer.Option("--full", help="Do not truncate events.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a trace with its events."""
    with open_client() as client:
        trace_id = _find_trace(client, trace_id, project)
        trace = client.traces.get(trace_id)
        if len(trace.events) < trace.event_count:
            trace.events = list(client.traces.events.list(trace_id))
        runs = [] if as_json else client.runs.list(trace_id=trace_id).items
    if as_json:
        print_json(trace)
        return
    _print_summary(trace)
    print_learned(trace, runs)
    for event in trace.events:
        print_text()
        _print_event(event, full)


@trace_commands.command("outcome")
def record_outcome(
    trace_id: TraceId,
    outcome: Annotated[Outcome, typer.Argument(metavar="OUTCOME", help="How the run ended.")],
    project: TraceProject = None,
    as_json: AsJson = False,
) -> None:
    """Record how an agent run ended. Hansei then learns from it."""
    with open_client() as client:
        trace_id = _find_trace(client, trace_id, project)
        receipt = client.traces.record_outcome(trace_id, outcome.value)
    if as_json:
        print_json(receipt)
    else:
        print_message(f"Recorded. Learning run: {receipt.run_id or 'none'}.")


@trace_commands.command("delete")
def delete_trace(
    trace_id: TraceId,
    project: TraceProject = None,
    reason: Annotated[str | None, typer.Option(help="Stored with the tombstone.")] = None,
    as_json: AsJson = False,
) -> None:
    """Delete a trace for good. The lessons learned from it stay."""
    with open_client() as client:
        trace_id = _find_trace(client, trace_id, project)
        client.traces.delete(trace_id, reason=reason)
    if as_json:
        print_json({"deleted": trace_id})
    else:
        print_text(
            f"Deleted. Its lessons stay; to remove them too: `hansei erase trace {trace_id}`"
        )


def _find_trace(client: Hansei, given: str, project: str | None) -> str:
    """The ID of the trace with this ID or `external_id`. Raises `NotFoundError`."""
    for trace in client.traces.list(external_id=given, project_id=project, limit=1):
        return trace.id
    with suppress(ValueError):
        return str(UUID(given))
    where = f"project {project}" if project else "the project of the API key (--project)"
    raise NotFoundError(f"No trace in {where} has the `external_id` {given!r}.")


def _print_summary(trace: TraceWithEvents) -> None:
    facts = [
        trace.id,
        trace.outcome or "no outcome",
        trace.state,
        format_age(trace.created_at),
    ]
    print_text(" · ".join(facts), style="bold")
    if conflict := trace.conflict:
        sides = f"reported {conflict.reported}, the declared check found {conflict.check}"
        print_text(f"conflict: {sides}", style="red")
        for reason in conflict.reasons:
            print_text(reason, indent=2)
    fields = {
        "external ID": trace.external_id,
        "task": trace.task_description,
        "goal": trace.task_goal,
        "task key": trace.task_key,
        "error": format_error(trace.error) if trace.error else None,
        "answer": trace.generated_answer,
        "used bullets": ", ".join(trace.used_bullet_keys),
    }
    for name, value in fields.items():
        if value:
            print_text(f"{name}: {truncate(value, MAX_EVENT_LENGTH)}")


def _print_event(event: TraceEvent, full: bool) -> None:
    facts = [event.event_id, event.event_type, event.tool_name, event.agent]
    print_text(" · ".join(fact for fact in facts if fact), style="dim")
    content = event.content
    print_text(content if full else truncate(content, MAX_EVENT_LENGTH), indent=2)
    if event.error:
        print_text(f"error: {format_error(event.error)}", indent=2, style="red")
