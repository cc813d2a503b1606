"""`hansei memory`: list, show and delete memories."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from hansei import models
from hansei.cli.options import AsJson, MemoryKind, Project, Tags
from hansei.cli.terminal import (
    format_age,
    format_count,
    open_client,
    print_json,
    print_message,
    print_text,
    truncate_line,
)
from hansei.models import Memory, MemoryRevision, SettableStatus

MAX_LISTED_LENGTH = 100
"""Characters of a memory in a list."""

memory_commands = typer.Typer(
    name="memory", help="List, show and delete memories.", no_args_is_help=True
)


@memory_commands.command("show")
def show_memory(
    memory_id: Annotated[str, typer.Argument(metavar="ID")],
    history: Annotated[bool, typer.Option("--history", help="Also show its revisions.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a memory."""
    with open_client() as client:
        memory = client.memories.get(memory_id)
        revisions = list(client.memories.revisions.list(memory_id)) if history else []
    if as_json:
        print_json({**memory.model_dump(), "revisions": revisions} if history else memory)
        return
    _print_memory(memory)
    for revision in revisions:
        _print_revision(revision)


@memory_commands.command("list")
def list_memories(
    kind: Annotated[
        list[MemoryKind] | None, typer.Option(help="Only this kind. Repeatable.")
    ] = None,
    tag: Tags = None,
    project: Project = None,
    status: Annotated[
        SettableStatus, typer.Option(help="Searches only find active memories.")
    ] = "active",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of memories.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List memories, newest first."""
    with open_client() as client:
        memories = list(
            client.memories.list(
                project_id=project,
                kind=cast("list[models.MemoryKind]", [each.value for each in kind or ()]),
                tag=tag,
                status=status,
                limit=limit,
            )
        )
    if as_json:
        print_json({"items": memories})
        return
    if not memories:
        print_message("No memories found.")
    for memory in memories:
        age = format_age(memory.created_at)
        facts = [memory.id, memory.kind, f"{memory.importance:.2f}", age]
        print_text(" · ".join(facts), style="dim")
        print_text(truncate_line(memory.content, MAX_LISTED_LENGTH), indent=2)


@memory_commands.command("delete")
def delete_memories(
    memory_ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    reason: Annotated[str | None, typer.Option(help="Stored in the history.")] = None,
    as_json: AsJson = False,
) -> None:
    """Delete memories. Searches no longer find them; their revisions remain."""
    with open_client() as client:
        for memory_id in memory_ids:
            client.memories.delete(memory_id, reason=reason)
    if as_json:
        print_json({"deleted": memory_ids})
    else:
        print_text(f"Deleted {format_count(len(memory_ids), 'memory', 'memories')}.")


def _print_memory(memory: Memory) -> None:
    facts = [memory.kind, memory.status, f"importance {memory.importance:.2f}"]
    if memory.error_category:
        facts.append(memory.error_category)
    print_text(" · ".join([*facts, format_age(memory.created_at)]), style="bold")
    if memory.when_to_use:
        print_text(f"When to use: {memory.when_to_use}")
    print_text(memory.content)
    fields = {
        "tags": ", ".join(memory.tags),
        "project": memory.project_id,
        "observations": str(memory.observation_count),
        "verdicts": f"{memory.helpful} helpful, {memory.harmful} harmful",
        "trace": memory.trace_id,
        "source events": ", ".join(memory.source_event_ids),
    }
    for name, value in fields.items():
        if value:
            print_text(f"{name}: {value}", style="dim")


def _print_revision(revision: MemoryRevision) -> None:
    facts = [f"revision {revision.revision}", format_age(revision.created_at)]
    facts += [text for text in (revision.actor, revision.reason) if text]
    print_text()
    print_text(" · ".join(facts), style="dim")
    state = f"{revision.status}, importance {revision.importance:.2f}"
    print_text(f"{state}: {revision.content}")
