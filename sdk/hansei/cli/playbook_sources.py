"""`hansei playbook lessons` and `provenance`: why a playbook has a bullet, or has none."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hansei.cli.learned import print_waiting, print_why_empty
from hansei.cli.options import AsJson, PlaybookName, Project, open_playbook_client
from hansei.cli.terminal import (
    format_age,
    print_json,
    print_message,
    print_text,
    truncate_line,
)

MAX_EVENT_CHARACTERS = 200


def list_lessons(
    name: PlaybookName,
    decision: Annotated[
        Literal["added", "updated", "merged", "already_known", "waiting", "proposed", "rejected"]
        | None,
        typer.Option(help="Only lessons with this decision."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lessons.")] = 20,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List what the curator decided on each lesson and why, the last decision first."""
    with open_playbook_client() as client:
        lessons = list(
            client.playbooks.lessons.list(name, decision=decision, project_id=project, limit=limit)
        )
        if not lessons and decision is None and not as_json:
            print_message("No lessons found.")
            print_why_empty(client, name, project)
            return
        waiting = client.playbooks.bullets.list(name, status="quarantined", project_id=project)
        keys = {lesson.key for lesson in lessons}
        bullets = [] if as_json else [bullet for bullet in waiting if bullet.id in keys]
    if as_json:
        print_json({"items": lessons})
        return
    if not lessons:
        print_message(f"No lessons with the decision {decision}.")
    for lesson in lessons:
        facts = [lesson.decision.replace("_", " "), lesson.key, format_age(lesson.decided_at)]
        print_text(" · ".join(filter(None, facts)), style="dim")
        print_text(lesson.text or "(erased)", indent=2)
        if lesson.reason:
            print_text(lesson.reason, indent=2, style="dim")
    print_waiting(name, bullets)


def show_provenance(
    name: PlaybookName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="For example mis-00001.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show the lessons that a bullet was made of, with their traces and events."""
    with open_playbook_client() as client:
        provenance = client.playbooks.bullets.get_provenance(name, key, project_id=project)
    if as_json:
        print_json(provenance)
        return
    if not provenance.links:
        print_message("No sources: the bullet was written by hand or imported.")
    nearest = {link.target_id: link for link in reversed(provenance.links)}
    for link in (each for each in provenance.links if nearest[each.target_id] is each):
        kind = link.kind or link.target_kind
        facts = [kind if kind == "trace" else f"{kind} of trace", link.trace_id, link.outcome]
        print_text(" · ".join(filter(None, facts)), indent=2 * (link.depth - 1), style="dim")
        text = link.content or link.task_description
        if text:
            print_text(text, indent=2 * link.depth)
        for event in link.events:
            line = f"{event['event_id']} {event['event_type']}: {event['content']}"
            print_text(truncate_line(line, MAX_EVENT_CHARACTERS), indent=2 * link.depth)
