"""`hansei memory`: what is remembered."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Literal

import typer

from hansei.answers import Memory, Revision
from hansei.commands.choices import Kind
from hansei.routes import PAGE
from hansei.terminal import ago, connect, count, one_line, say, show, show_json

Status = Literal["active", "quarantined", "archived"]
LINE = 100
"""Characters of a memory in a list."""

memory = typer.Typer(name="memory", help="Look at memories, or forget them.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@memory.command("show")
def show_one(
    memory_id: Annotated[str, typer.Argument(metavar="ID")],
    history: Annotated[bool, typer.Option("--history", help="Also how it came to be so.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one memory."""
    with connect() as client:
        found = client.memory(memory_id)
        revisions = list(client.revisions(memory_id)) if history else []
    if as_json:
        show_json({**found, "revisions": revisions} if history else found)
        return
    _show_memory(found)
    for revision in revisions:
        _show_revision(revision)


@memory.command("list")
def show_many(
    kind: Annotated[
        list[Kind] | None, typer.Option(help="Only this kind; may be repeated.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="With this tag; may be repeated.")] = None,
    project: Annotated[str | None, typer.Option(help="The project to list.")] = None,
    status: Annotated[Status, typer.Option(help="Only an active memory is served.")] = "active",
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List memories, newest first."""
    with connect() as client:
        every = client.memories(
            project_id=project,
            kind=kind or (),
            tag=tag or (),
            status=status,
            limit=min(limit, PAGE),
        )
        found = list(islice(every, limit))
    if as_json:
        show_json({"items": found})
        return
    if not found:
        say("No such memory.")
    for each in found:
        facts = [each["id"], each["kind"], f"{each['importance']:.2f}", ago(each["created_at"])]
        show(" · ".join(facts), style="dim")
        show(one_line(each["content"], LINE), indent=2)


@memory.command("forget")
def forget(
    memory_ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    reason: Annotated[str | None, typer.Option(help="Kept in the history.")] = None,
    as_json: AsJson = False,
) -> None:
    """Forget memories: they are found no more. Their history stays."""
    with connect() as client:
        for memory_id in memory_ids:
            client.forget(memory_id, reason=reason)
    if as_json:
        show_json({"forgotten": memory_ids})
    else:
        show(f"{count(len(memory_ids), 'memory', 'memories')} forgotten.")


def _show_memory(found: Memory) -> None:
    facts = [found["kind"], found["status"], f"importance {found['importance']:.2f}"]
    if found["error_category"]:
        facts.append(found["error_category"])
    show(" · ".join([*facts, ago(found["created_at"])]), style="bold")
    if found["when_to_use"]:
        show(f"When: {found['when_to_use']}")
    show(found["content"])
    told = {
        "tags": ", ".join(found["tags"]),
        "project": found["project_id"],
        "witnesses": str(found["witnesses"]),
        "votes": f"{found['helpful']} helpful, {found['harmful']} harmful",
        "trace": found["trace_id"],
        "from": ", ".join(found["source_event_ids"]),
    }
    for name, value in told.items():
        if value:
            show(f"{name}: {value}", style="dim")


def _show_revision(revision: Revision) -> None:
    facts = [f"revision {revision['revision']}", ago(revision["created_at"])]
    facts += [said for said in (revision["actor"], revision["reason"]) if said]
    show()
    show(" · ".join(facts), style="dim")
    show(f"{revision['status']}, importance {revision['importance']:.2f}: {revision['content']}")
