"""`hansei playbook lessons` and `provenance`: why a playbook has a bullet, or has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from hansei.cli.commands import Client, Output
from hansei.cli.learned import print_waiting, print_why_empty
from hansei.cli.options import BulletKey, Limit, PlaybookName, Project
from hansei.cli.terminal import format_age, print_message, print_text, truncate_line
from hansei.models import ProvenanceLink

MAX_EVENT_CHARACTERS = 200


def list_lessons(
    client: Client,
    name: PlaybookName,
    decision: Annotated[
        Literal["added", "updated", "merged", "already_known", "waiting", "proposed", "rejected"]
        | None,
        typer.Option(help="Only lessons with this decision."),
    ] = None,
    limit: Limit = 20,
    project: Project = None,
) -> Output:
    """List what the curator decided on each lesson and why, the last decision first."""
    lessons = list(
        client.playbooks.lessons.list(name, decision=decision, project_id=project, limit=limit)
    )

    def show() -> None:
        if not lessons and decision is not None:
            print_message(f"No lessons with the decision {decision}.")
        elif not lessons:
            print_message("No lessons found.")
            print_why_empty(client, name, project)
        for lesson in lessons:
            facts = [lesson.decision.replace("_", " "), lesson.key, format_age(lesson.decided_at)]
            print_text(" · ".join(filter(None, facts)), style="dim")
            print_text(lesson.text or "(erased)", indent=2)
            if lesson.reason:
                print_text(lesson.reason, indent=2, style="dim")
        if lessons:
            keys = {lesson.key for lesson in lessons}
            waiting = client.playbooks.bullets.list(name, status="quarantined", project_id=project)
            print_waiting(name, [bullet for bullet in waiting if bullet.id in keys], project)

    return Output({"items": lessons}, show)


def show_provenance(
    client: Client, name: PlaybookName, key: BulletKey, project: Project = None
) -> Output:
    """Show the lessons that a bullet was made of, with their traces and events."""
    provenance = client.playbooks.bullets.get_provenance(name, key, project_id=project)
    return Output(provenance, lambda: _print_links(provenance.links))


def _print_links(links: Sequence[ProvenanceLink]) -> None:
    if not links:
        print_message("No sources: the bullet was written by hand or imported.")
    nearest = {link.target_id: link for link in reversed(links)}
    for link in (each for each in links if nearest[each.target_id] is each):
        kind = link.kind or link.target_kind
        facts = [kind if kind == "trace" else f"{kind} of trace", link.trace_id, link.outcome]
        print_text(" · ".join(filter(None, facts)), indent=2 * (link.depth - 1), style="dim")
        text = link.content or link.task_description
        if text:
            print_text(text, indent=2 * link.depth)
        for event in link.events:
            line = f"{event['event_id']} {event['event_type']}: {event['content']}"
            print_text(truncate_line(line, MAX_EVENT_CHARACTERS), indent=2 * link.depth)
