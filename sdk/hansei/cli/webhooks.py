"""`hansei webhook`: addresses that receive events, and what was sent to them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, cast

import typer

from hansei.cli.options import AsJson, Project
from hansei.cli.terminal import (
    format_age,
    open_client,
    print_json,
    print_message,
    print_table,
    print_text,
)

webhook_commands = typer.Typer(
    name="webhook", help="Send events to an address of yours.", no_args_is_help=True
)


class EventType(StrEnum):
    """The events of the OpenAPI document."""

    REFLECTION = "reflection.created"
    PROPOSAL = "proposal.created"
    QUARANTINE = "bullet.quarantined"
    BUDGET = "budget.threshold_reached"
    INTERVENTION = "intervention.requested"


WebhookId = Annotated[str, typer.Argument(metavar="ID", help="ID of the webhook.")]


@webhook_commands.command("create")
def create_webhook(
    url: Annotated[str, typer.Argument(metavar="URL")],
    event: Annotated[
        list[EventType] | None, typer.Option(help="Send this event. Repeatable. Default: all.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Create a webhook and print its secret. Requires an admin key."""
    types = cast(Any, [each.value for each in event]) if event else None
    with open_client() as client:
        webhook = client.webhooks.create(
            url, event_types=types, project_id=project, description=description
        )
    if as_json:
        print_json(webhook)
        return
    print_text(f"Webhook {webhook.id} receives {', '.join(webhook.event_types)}.")
    print_text(f"Secret (shown once): {webhook.secret}")


@webhook_commands.command("list")
def list_webhooks(as_json: AsJson = False) -> None:
    """List the webhooks of your tenant."""
    with open_client() as client:
        webhooks = list(client.webhooks.list())
    if as_json:
        print_json({"items": webhooks})
    elif not webhooks:
        print_message("No webhooks.")
    else:
        rows = [(each.id, each.url, "active" if each.active else "paused") for each in webhooks]
        print_table(("id", "url", "state"), rows)


@webhook_commands.command("test")
def send_test_event(webhook_id: WebhookId, as_json: AsJson = False) -> None:
    """Send the event `webhook.test` to check a receiver."""
    with open_client() as client:
        delivery = client.webhooks.send_test_event(webhook_id)
    if as_json:
        print_json(delivery)
    else:
        print_text(f"Queued; `hansei webhook log {webhook_id}` shows the answer.")


@webhook_commands.command("rotate-secret")
def rotate_webhook_secret(
    webhook_id: WebhookId,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=168, help="How long the old secret signs too, in hours.")
    ] = 24,
    as_json: AsJson = False,
) -> None:
    """Replace the secret of a webhook and print the new one."""
    with open_client() as client:
        webhook = client.webhooks.rotate_secret(
            webhook_id, overlap_seconds=round(overlap_hours * 3600)
        )
    if as_json:
        print_json(webhook)
    else:
        print_text(f"New secret (shown once): {webhook.secret}")
        print_text(f"The old one signs too for {overlap_hours:g} hours.")


@webhook_commands.command("delete")
def delete_webhook(webhook_id: WebhookId) -> None:
    """Delete a webhook with the log of its deliveries."""
    with open_client() as client:
        client.webhooks.delete(webhook_id)
    print_text("Deleted.")


@webhook_commands.command("log")
def list_webhook_deliveries(
    webhook_id: WebhookId,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of deliveries.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List what was sent to a webhook, newest first."""
    with open_client() as client:
        deliveries = list(client.webhooks.deliveries.list(webhook_id, limit=limit))
    if as_json:
        print_json({"items": deliveries})
        return
    rows = [
        (
            each.id,
            each.event_type,
            each.state,
            f"{each.attempt_count}",
            each.error or f"{each.response_status or ''}",
            format_age(each.created_at),
        )
        for each in deliveries
    ]
    print_table(("id", "event", "state", "attempts", "answer", "created"), rows)


@webhook_commands.command("replay")
def replay_webhook_delivery(
    webhook_id: WebhookId,
    delivery_id: Annotated[str, typer.Argument(metavar="DELIVERY", help="ID of the delivery.")],
    as_json: AsJson = False,
) -> None:
    """Send a delivery that has ended again."""
    with open_client() as client:
        delivery = client.webhooks.deliveries.replay(webhook_id, delivery_id)
    if as_json:
        print_json(delivery)
    else:
        print_text(f"Queued; see `hansei run show {delivery.run_id}`.")
