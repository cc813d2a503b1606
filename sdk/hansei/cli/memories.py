"""`hansei memory`: list, show and delete memories."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from hansei.cli.commands import Client, Output, command, listing
from hansei.cli.options import Limit, MemoryKind, Project, Reason, Tags
from hansei.cli.terminal import (
    format_age,
    format_count,
    print_fields,
    print_text,
    truncate_line,
)
from hansei.models import Memory, MemoryRevision, SettableStatus

MAX_LISTED_LENGTH = 100
"""Characters of a memory in a list."""

memory_commands = typer.Typer(
    name="memory", help="List, show and delete memories.", no_args_is_help=True
)


@command(memory_commands, "show")
def show_memory(
    client: Client,
    memory_id: Annotated[str, typer.Argument(metavar="ID")],
    history: Annotated[bool, typer.Option("--history", help="Also show its revisions.")] = False,
) -> Output:
    """Show a memory."""
    memory = client.memories.get(memory_id)
    revisions = list(client.memories.revisions.list(memory_id)) if history else []

    def show() -> None:
        _print_memory(memory)
        for revision in revisions:
            _print_revision(revision)

    result = {**memory.model_dump(), "revisions": revisions} if history else memory
    return Output(result, show)


@command(memory_commands, "list")
def list_memories(
    client: Client,
    kind: Annotated[
        list[MemoryKind] | None, typer.Option(help="Only this kind. Repeatable.")
    ] = None,
    tag: Tags = None,
    project: Project = None,
    status: Annotated[
        SettableStatus, typer.Option(help="Searches only find active memories.")
    ] = "active",
    limit: Limit = 20,
) -> Output:
    """List memories, newest first."""
    memories = client.memories.list(
        project_id=project, kind=cast(Any, kind), tag=tag, status=status, limit=limit + 1
    )
    return listing(memories, "No memories found.", each=_print_line, limit=limit)


@command(memory_commands, "delete")
def delete_memories(
    client: Client,
    memory_ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    reason: Reason = None,
) -> Output:
    """Delete memories. Searches no longer find them; their revisions remain."""
    for memory_id in memory_ids:
        client.memories.delete(memory_id, reason=reason)
    count = format_count(len(memory_ids), "memory", "memories")
    return Output({"deleted": memory_ids}, f"Deleted {count}.")


def _print_line(memory: Memory) -> None:
    age = format_age(memory.created_at)
    facts = [memory.id, memory.kind, f"{memory.importance:.2f}", age]
    print_text(" · ".join(facts), style="dim")
    print_text(truncate_line(memory.content, MAX_LISTED_LENGTH), indent=2)


def _print_memory(memory: Memory) -> None:
    facts = [memory.kind, memory.status, f"importance {memory.importance:.2f}"]
    if memory.error_category:
        facts.append(memory.error_category)
    print_text(" · ".join([*facts, format_age(memory.created_at)]), style="bold")
    if memory.when_to_use:
        print_text(f"When to use: {memory.when_to_use}")
    print_text(memory.content)
    print_fields(
        {
            "tags": ", ".join(memory.tags),
            "project": memory.project_id,
            "observations": str(memory.observation_count),
            "verdicts": f"{memory.helpful} helpful, {memory.harmful} harmful",
            "trace": memory.trace_id,
            "source events": ", ".join(memory.source_event_ids),
        },
        style="dim",
    )


def _print_revision(revision: MemoryRevision) -> None:
    facts = [f"revision {revision.revision}", format_age(revision.created_at)]
    facts += [text for text in (revision.actor, revision.reason) if text]
    print_text()
    print_text(" · ".join(facts), style="dim")
    state = f"{revision.status}, importance {revision.importance:.2f}"
    print_text(f"{state}: {revision.content}")
