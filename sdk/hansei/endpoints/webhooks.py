"""Requests about webhooks and their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict, Unpack

from hansei._request import (
    MAX_PAGE_SIZE,
    Id,
    Request,
    api_path,
    drop_none,
    get_request,
    write_request,
)
from hansei.types import Json, Page

WebhookEventType = Literal[
    "reflection.created",
    "proposal.created",
    "bullet.quarantined",
    "budget.threshold_reached",
    "intervention.requested",
]
DeliveryState = Literal["queued", "retrying", "delivered", "failed"]


class WebhookEndpoint(TypedDict):
    """An address that receives events."""

    id: str
    project_id: str | None
    url: str
    event_types: list[str]
    description: str | None
    is_active: bool
    created_at: str
    updated_at: str


class CreateWebhookResponse(WebhookEndpoint):
    """`secret` verifies the signatures. It is shown once."""

    secret: str


class WebhookDelivery(TypedDict):
    """One event for one webhook, and what became of it."""

    id: str
    webhook_id: str
    event_type: str
    payload: Json
    state: DeliveryState
    attempt_count: int
    response_status: int | None
    error: str | None
    run_id: str
    created_at: str
    finished_at: str | None


class UpdateWebhookOptions(TypedDict, total=False):
    """A field that is not given is unchanged."""

    url: str
    event_types: Sequence[WebhookEventType]
    description: str | None
    is_active: bool


def create_webhook(
    url: str,
    *,
    event_types: Sequence[WebhookEventType] | None = None,
    project_id: str | None = None,
    description: str | None = None,
) -> Request[CreateWebhookResponse]:
    """Create an address that receives events, by default all."""
    types = None if event_types is None else list(event_types)
    options = {"event_types": types, "project_id": project_id, "description": description}
    return write_request("POST", api_path("webhooks"), {"url": url, **drop_none(options)})


def list_webhooks(*, limit: int = MAX_PAGE_SIZE) -> Request[Page[WebhookEndpoint]]:
    """List the webhooks of the tenant, newest first. `limit` is the page size."""
    return get_request(api_path("webhooks"), limit=limit)


def update_webhook(
    webhook_id: Id, **changes: Unpack[UpdateWebhookOptions]
) -> Request[WebhookEndpoint]:
    """Change the given fields of a webhook."""
    return write_request("PATCH", api_path("webhooks", webhook_id), changes)


def rotate_webhook_secret(
    webhook_id: Id, *, overlap_seconds: int = 86_400
) -> Request[CreateWebhookResponse]:
    """Replace the secret of a webhook. The old one signs too for `overlap_seconds`."""
    path = api_path("webhooks", webhook_id, "rotate-secret")
    return write_request("POST", path, {"overlap_seconds": overlap_seconds})


def send_test_event(webhook_id: Id) -> Request[WebhookDelivery]:
    """Send the event `webhook.test` to a webhook."""
    return write_request("POST", api_path("webhooks", webhook_id, "test"))


def delete_webhook(webhook_id: Id) -> Request[None]:
    """Delete a webhook with the log of its deliveries."""
    return write_request("DELETE", api_path("webhooks", webhook_id))


def list_webhook_deliveries(
    webhook_id: Id, *, state: DeliveryState | None = None, limit: int = MAX_PAGE_SIZE
) -> Request[Page[WebhookDelivery]]:
    """List the deliveries of a webhook, newest first. `limit` is the page size."""
    return get_request(api_path("webhooks", webhook_id, "deliveries"), state=state, limit=limit)


def replay_webhook_delivery(webhook_id: Id, delivery_id: Id) -> Request[WebhookDelivery]:
    """Send a delivery that has ended again."""
    path = api_path("webhooks", webhook_id, "deliveries", delivery_id, "replay")
    return write_request("POST", path)
