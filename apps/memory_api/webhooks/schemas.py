"""Webhooks on the wire."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import Field, field_validator
from typing_extensions import TypeAliasType

from memory_api.core.outgoing import AddressRefused, parse_url
from memory_api.core.schemas import (
    Metadata,
    Name,
    Page,
    RequestModel,
    ResponseModel,
    UtcDatetime,
    with_examples,
)
from memory_api.webhooks.outbox import EVENT_TYPES, WebhookEventType

MAX_URL_LENGTH = 2_000
MAX_OVERLAP_SECONDS = 7 * 86_400
DeliveryState = TypeAliasType("DeliveryState", Literal["queued", "retrying", "delivered", "failed"])

_ID = "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa20"
CREATE_EXAMPLE: dict[str, Any] = {
    "url": "https://example.com/hansei",
    "event_types": ["proposal.created", "budget.threshold_reached"],
    "description": "Reviews of the support team",
}
UPDATE_EXAMPLE: dict[str, Any] = {"active": False}
ROTATE_EXAMPLE: dict[str, Any] = {"overlap_seconds": 86_400}
_WEBHOOK: dict[str, Any] = {
    "id": _ID,
    "project_id": None,
    **CREATE_EXAMPLE,
    "active": True,
    "created_at": "2026-11-21T09:00:00Z",
    "updated_at": "2026-11-21T09:00:00Z",
}
_DELIVERY: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa21",
    "webhook_id": _ID,
    "event_type": "proposal.created",
    "payload": {
        "type": "proposal.created",
        "timestamp": "2026-11-21T09:00:00+00:00",
        "data": {
            "tenant_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa01",
            "project_id": "default",
            "playbook": "support",
            "proposal_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa22",
        },
    },
    "state": "delivered",
    "attempt_count": 1,
    "response_status": 204,
    "error": None,
    "run_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa23",
    "created_at": "2026-11-21T09:00:00Z",
    "finished_at": "2026-11-21T09:00:01Z",
}


def _check_url(url: str) -> str:
    try:
        parse_url(url)
    except AddressRefused as error:
        raise ValueError(error.detail) from None
    return url


class CreateWebhookRequest(RequestModel):
    """An address that receives events by POST."""

    url: str = Field(max_length=MAX_URL_LENGTH)
    event_types: list[WebhookEventType] = Field(
        default_factory=lambda: list(EVENT_TYPES),
        min_length=1,
        max_length=32,
        description="The events to send. Default: all.",
    )
    project_id: Name | None = Field(default=None, description="Only events of this project.")
    description: str | None = Field(default=None, max_length=500)

    _url = field_validator("url")(_check_url)


class UpdateWebhookRequest(RequestModel):
    """A field that is not given is unchanged."""

    url: str | None = Field(default=None, max_length=MAX_URL_LENGTH)
    event_types: list[WebhookEventType] | None = Field(default=None, min_length=1, max_length=32)
    description: str | None = Field(default=None, max_length=500)
    active: bool | None = Field(default=None, description="False pauses the webhook.")

    @field_validator("url")
    @classmethod
    def _check(cls, url: str | None) -> str | None:
        return None if url is None else _check_url(url)


class RotateWebhookSecretRequest(RequestModel):
    """How long both secrets are valid."""

    overlap_seconds: int = Field(
        default=86_400,
        ge=0,
        le=MAX_OVERLAP_SECONDS,
        description="How long the old secret signs too, in seconds. 0: not at all.",
    )


class WebhookEndpoint(ResponseModel):
    """An address that receives events."""

    model_config = with_examples(_WEBHOOK)

    id: UUID
    project_id: str | None
    url: str
    event_types: list[str]
    description: str | None
    active: bool
    created_at: UtcDatetime
    updated_at: UtcDatetime


class CreateWebhookResponse(WebhookEndpoint):
    """A webhook with its new secret, which is shown once."""

    model_config = with_examples(_WEBHOOK | {"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})

    secret: str = Field(description="Verifies the signatures (Standard Webhooks).")


class WebhookPage(Page[WebhookEndpoint]):
    """One page of webhooks, newest first."""


class WebhookDelivery(ResponseModel):
    """One event for one webhook, and what became of it."""

    model_config = with_examples(_DELIVERY)

    id: UUID
    webhook_id: UUID
    event_type: str
    payload: Metadata = Field(description="The body that is sent.")
    state: DeliveryState
    attempt_count: int
    response_status: int | None = Field(description="Status of the last answer.")
    error: str | None = Field(description="Why the last attempt failed.")
    run_id: UUID = Field(description="The run that sends it.")
    created_at: UtcDatetime
    finished_at: UtcDatetime | None


class WebhookDeliveryPage(Page[WebhookDelivery]):
    """One page of deliveries, newest first."""
