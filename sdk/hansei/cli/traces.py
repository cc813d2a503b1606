"""`hansei trace`: show traces."""

from __future__ import annotations

from typing import Annotated

import typer

from hansei.cli.options import AsJson
from hansei.cli.terminal import (
    format_age,
    format_error,
    open_client,
    print_json,
    print_text,
    truncate,
)
from hansei.types import TraceEvent, TraceWithEvents

MAX_EVENT_LENGTH = 400

trace_commands = typer.Typer(name="trace", help="Show traces.", no_args_is_help=True)


@trace_commands.command("show")
def show_trace(
    trace_id: Annotated[str, typer.Argument(metavar="ID")],
    full: Annotated[bool, typer.Option("--full", help="Do not truncate events.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a trace with its events."""
    with open_client() as client:
        trace = client.get_trace(trace_id)
        if len(trace["events"]) < trace["event_count"]:
            trace["events"] = list(client.list_trace_events(trace_id))
    if as_json:
        print_json(trace)
        return
    _print_summary(trace)
    for event in trace["events"]:
        print_text()
        _print_event(event, full)


def _print_summary(trace: TraceWithEvents) -> None:
    facts = [
        trace["external_id"] or trace["id"],
        trace["outcome"] or "no outcome",
        trace["state"],
        format_age(trace["created_at"]),
    ]
    print_text(" · ".join(facts), style="bold")
    fields = {
        "task": trace["task_description"],
        "goal": trace["task_goal"],
        "task key": trace["task_key"],
        "error": format_error(trace["error"]) if trace["error"] else None,
        "answer": trace["generated_answer"],
    }
    for name, value in fields.items():
        if value:
            print_text(f"{name}: {truncate(value, MAX_EVENT_LENGTH)}")


def _print_event(event: TraceEvent, full: bool) -> None:
    facts = [event["event_id"], event["event_type"], event["tool_name"], event["agent"]]
    print_text(" · ".join(fact for fact in facts if fact), style="dim")
    content = event["content"]
    print_text(content if full else truncate(content, MAX_EVENT_LENGTH), indent=2)
    if event["error"]:
        print_text(f"error: {format_error(event['error'])}", indent=2, style="red")
