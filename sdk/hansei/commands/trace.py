"""`hansei trace`: what an agent did."""

from __future__ import annotations

from typing import Annotated

import typer

from hansei.answers import Event, TraceDetail
from hansei.terminal import ago, cause, connect, cut, show, show_json

LONGEST_EVENT = 400

trace = typer.Typer(name="trace", help="Look at traces.", no_args_is_help=True)


@trace.command("show")
def show_trace(
    trace_id: Annotated[str, typer.Argument(metavar="ID")],
    full: Annotated[bool, typer.Option("--full", help="Do not shorten events.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show one trace, step by step."""
    with connect() as client:
        found = client.trace(trace_id)
    if as_json:
        show_json(found)
        return
    _show_head(found)
    for event in found["events"]:
        show()
        _show_event(event, full)


def _show_head(found: TraceDetail) -> None:
    named = [found["external_id"] or found["id"], found["outcome"] or "no outcome", found["state"]]
    show(" · ".join([*named, ago(found["created_at"])]), style="bold")
    told = {
        "task": found["task_description"],
        "goal": found["task_goal"],
        "attempt of": found["task_key"],
        "error": cause(found["error"]) if found["error"] else None,
        "answer": found["generated_answer"],
    }
    for name, value in told.items():
        if value:
            show(f"{name}: {cut(value, LONGEST_EVENT)}")


def _show_event(event: Event, full: bool) -> None:
    facts = [event["event_id"], event["event_type"], event["tool_name"], event["agent"]]
    show(" · ".join(fact for fact in facts if fact), style="dim")
    content = event["content"]
    show(content if full else cut(content, LONGEST_EVENT), indent=2)
    if event["error"]:
        show(f"error: {cause(event['error'])}", indent=2, style="red")
