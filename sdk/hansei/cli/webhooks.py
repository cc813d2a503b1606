"""`hansei webhook`: addresses that receive events, and what was sent to them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, cast

import typer

from hansei.cli.commands import Client, Output, command, listing
from hansei.cli.options import Limit, Project
from hansei.cli.terminal import format_age, print_table
from hansei.models import WebhookDelivery, WebhookEndpoint

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


@command(webhook_commands, "create")
def create_webhook(
    client: Client,
    url: Annotated[str, typer.Argument(metavar="URL")],
    event: Annotated[
        list[EventType] | None, typer.Option(help="Send this event. Repeatable. Default: all.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    project: Project = None,
) -> Output:
    """Create a webhook and print its secret. Requires an admin key."""
    webhook = client.webhooks.create(
        url, event_types=cast(Any, event), project_id=project, description=description
    )
    return Output(
        webhook,
        f"Webhook {webhook.id} receives {', '.join(webhook.event_types)}.\n"
        f"Secret (shown once): {webhook.secret}",
    )


@command(webhook_commands, "list")
def list_webhooks(client: Client) -> Output:
    """List the webhooks of your tenant."""

    def table(webhooks: list[WebhookEndpoint]) -> None:
        rows = [(each.id, each.url, "active" if each.active else "paused") for each in webhooks]
        print_table(("id", "url", "state"), rows)

    return listing(client.webhooks.list(), "No webhooks.", table=table)


@command(webhook_commands, "test")
def send_test_event(client: Client, webhook_id: WebhookId) -> Output:
    """Send the event `webhook.test` to check a receiver."""
    delivery = client.webhooks.send_test_event(webhook_id)
    return Output(delivery, f"Queued; `hansei webhook log {webhook_id}` shows the answer.")


@command(webhook_commands, "rotate-secret")
def rotate_webhook_secret(
    client: Client,
    webhook_id: WebhookId,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=168, help="How long the old secret signs too, in hours.")
    ] = 24,
) -> Output:
    """Replace the secret of a webhook and print the new one."""
    seconds = round(overlap_hours * 3600)
    webhook = client.webhooks.rotate_secret(webhook_id, overlap_seconds=seconds)
    return Output(
        webhook,
        f"New secret (shown once): {webhook.secret}\n"
        f"The old one signs too for {overlap_hours:g} hours.",
    )


@command(webhook_commands, "delete")
def delete_webhook(client: Client, webhook_id: WebhookId) -> Output:
    """Delete a webhook with the log of its deliveries."""
    client.webhooks.delete(webhook_id)
    return Output({"deleted": webhook_id}, "Deleted.")


@command(webhook_commands, "log")
def list_webhook_deliveries(client: Client, webhook_id: WebhookId, limit: Limit = 20) -> Output:
    """List what was sent to a webhook, newest first."""
    deliveries = client.webhooks.deliveries.list(webhook_id, limit=limit + 1)
    return listing(deliveries, "Nothing was sent.", table=_print_deliveries, limit=limit)


@command(webhook_commands, "replay")
def replay_webhook_delivery(
    client: Client,
    webhook_id: WebhookId,
    delivery_id: Annotated[str, typer.Argument(metavar="DELIVERY", help="ID of the delivery.")],
) -> Output:
    """Send a delivery that has ended again."""
    delivery = client.webhooks.deliveries.replay(webhook_id, delivery_id)
    return Output(delivery, f"Queued; see `hansei run show {delivery.run_id}`.")


def _print_deliveries(deliveries: list[WebhookDelivery]) -> None:
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
