"""`hansei audit`: the administrative acts in a tenant."""

from __future__ import annotations

from typing import Annotated

import typer

from hansei.cli.commands import Client, Output, listing
from hansei.cli.terminal import print_text
from hansei.models import AuditEvent


def list_audit_log(
    client: Client,
    action: Annotated[
        str | None, typer.Option(help="Only this action, for example key.created.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of entries.")] = 50,
) -> Output:
    """List administrative acts, newest first. Requires an admin key."""
    events = client.audit_log.list(action=action, limit=limit + 1)
    return listing(events, "The audit log is empty.", each=_print_event, limit=limit)


def _print_event(event: AuditEvent) -> None:
    facts = [event.created_at, event.action, event.target, f"by {event.actor}"]
    facts += [f"{name}: {value}" for name, value in event.details.items() if value]
    print_text(" · ".join(facts))
