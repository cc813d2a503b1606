"""`hansei audit`: the administrative acts in a tenant."""

from __future__ import annotations

from typing import Annotated

import typer

from hansei.cli.options import AsJson
from hansei.cli.terminal import open_client, print_json, print_message, print_text


def list_audit_log(
    action: Annotated[
        str | None, typer.Option(help="Only this action, for example key.created.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of entries.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List administrative acts, newest first. Requires an admin key."""
    with open_client() as client:
        events = list(client.audit_log.list(action=action, limit=limit))
    if as_json:
        print_json({"items": events})
        return
    if not events:
        print_message("The audit log is empty.")
    for event in events:
        facts = [event.created_at, event.action, event.target, f"by {event.actor}"]
        facts += [f"{name}: {value}" for name, value in event.details.items() if value]
        print_text(" · ".join(facts))
