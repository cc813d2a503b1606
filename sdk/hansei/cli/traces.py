"""`hansei trace`: list, show and delete traces, and record their outcomes."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated
from uuid import UUID

import typer

from hansei.cli.commands import Client, Output, command, listing
from hansei.cli.learned import print_learned
from hansei.cli.options import Limit, Project
from hansei.cli.terminal import (
    format_age,
    format_count,
    format_error,
    print_fields,
    print_text,
    truncate,
    truncate_line,
)
from hansei.errors import NotFoundError
from hansei.models import OutcomeType, Trace, TraceEvent, TraceWithEvents

MAX_EVENT_LENGTH = 400
MAX_TASK_LENGTH = 100

trace_commands = typer.Typer(
    name="trace",
    help="List, show and delete traces, and record their outcomes.",
    no_args_is_help=True,
)


TraceId = Annotated[str, typer.Argument(metavar="ID", help="ID or `external_id` of the trace.")]
TraceProject = Annotated[str | None, typer.Option("--project", help="Project of an `external_id`.")]


@command(trace_commands, "list")
def list_traces(
    client: Client,
    playbook: Annotated[str | None, typer.Option(help="Only traces of this playbook.")] = None,
    outcome: Annotated[OutcomeType | None, typer.Option(help="Only this outcome.")] = None,
    project: Project = None,
    limit: Limit = 20,
) -> Output:
    """List traces, newest first."""
    traces = client.traces.list(
        playbook=playbook, outcome=outcome, project_id=project, limit=limit + 1
    )
    if playbook is not None and not traces.items:  # raises an error if there is no such playbook
        client.playbooks.versions.list(playbook, project_id=project, limit=1)
    return listing(traces, "No traces found.", each=_print_line, limit=limit)


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


@command(trace_commands, "show")
def show_trace(
    client: Client,
    trace_id: TraceId,
    project: TraceProject = None,
    full: Annotated[bool, typer.Option("--full", help="Do not truncate events.")] = False,
) -> Output:
    """Show a trace with its events."""
    trace_id = _find_trace(client, trace_id, project)
    trace = client.traces.get(trace_id)
    if len(trace.events) < trace.event_count:
        trace.events = list(client.traces.events.list(trace_id))

    def show() -> None:
        _print_summary(trace)
        print_learned(trace, client.runs.list(trace_id=trace_id).items)
        for event in trace.events:
            print_text()
            _print_event(event, full)

    return Output(trace, show)


@command(trace_commands, "outcome")
def record_outcome(
    client: Client,
    trace_id: TraceId,
    outcome: Annotated[OutcomeType, typer.Argument(metavar="OUTCOME", help="How the run ended.")],
    project: TraceProject = None,
) -> Output:
    """Record how an agent run ended. Hansei then learns from it."""
    trace_id = _find_trace(client, trace_id, project)
    receipt = client.traces.record_outcome(trace_id, outcome)
    return Output(receipt, f"Recorded. Learning run: {receipt.run_id or 'none'}.")


@command(trace_commands, "delete")
def delete_trace(
    client: Client,
    trace_id: TraceId,
    project: TraceProject = None,
    reason: Annotated[str | None, typer.Option(help="Stored with the tombstone.")] = None,
) -> Output:
    """Delete a trace for good, without asking. The lessons learned from it stay."""
    trace_id = _find_trace(client, trace_id, project)
    client.traces.delete(trace_id, reason=reason)
    text = (
        "Deleted for good, with its events and evaluations. What was learned from it stays: "
        f"bullets, memories and verdicts. To remove that too: `hansei erase trace {trace_id}`"
    )
    return Output({"deleted": trace_id}, text)


def _find_trace(client: Client, given: str, project: str | None) -> str:
    """The ID of the trace with this ID or `external_id`. Raises `NotFoundError`."""
    for trace in client.traces.list(external_id=given, project_id=project, limit=1):
        return trace.id
    with suppress(ValueError):
        return str(UUID(given))
    where = f"project {project}" if project else "the project of the API key (--project)"
    raise NotFoundError(f"No trace in {where} has the `external_id` {given!r}.")


def _print_summary(trace: TraceWithEvents) -> None:
    age = format_age(trace.created_at)
    facts = [trace.id, trace.outcome or "no outcome", trace.state, age]
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
    print_fields({name: truncate(value or "", MAX_EVENT_LENGTH) for name, value in fields.items()})


def _print_event(event: TraceEvent, full: bool) -> None:
    facts = [event.event_id, event.event_type, event.tool_name, event.agent]
    print_text(" · ".join(fact for fact in facts if fact), style="dim")
    content = event.content
    print_text(content if full else truncate(content, MAX_EVENT_LENGTH), indent=2)
    if event.error:
        print_text(f"error: {format_error(event.error)}", indent=2, style="red")
