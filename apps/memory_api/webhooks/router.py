"""Webhooks over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response

from memory_api.api.deps import (
    Admin,
    ApiStateDep,
    CursorQuery,
    Limit,
    RuntimeDep,
    Session,
    require_whole_tenant,
)
from memory_api.api.problems import problems
from memory_api.api.route import ApiRoute
from memory_api.core.errors import Conflict
from memory_api.core.pagination import to_page
from memory_api.core.schemas import body_example
from memory_api.tenants.audit_log import record_audit_event
from memory_api.webhooks import queries
from memory_api.webhooks.outbox import (
    enqueue_deliveries,
    new_delivery_run,
    new_test_delivery,
)
from memory_api.webhooks.schemas import (
    CREATE_EXAMPLE,
    ROTATE_EXAMPLE,
    UPDATE_EXAMPLE,
    CreateWebhookRequest,
    CreateWebhookResponse,
    DeliveryState,
    RotateWebhookSecretRequest,
    UpdateWebhookRequest,
    WebhookDelivery,
    WebhookDeliveryPage,
    WebhookEndpoint,
    WebhookPage,
)


async def require_tenant_admin(caller: Admin) -> None:
    require_whole_tenant(caller)


async def limit_requested_deliveries(caller: Admin, state: ApiStateDep) -> None:
    state.rate_limits.count_requested_delivery(caller.tenant_id)


router = APIRouter(
    prefix="/api/v1/webhooks",
    tags=["webhooks"],
    route_class=ApiRoute,
    dependencies=[Depends(require_tenant_admin)],
)


@router.post(
    "",
    status_code=201,
    summary="Create a webhook",
    responses=problems(409),
    openapi_extra=body_example(CREATE_EXAMPLE),
)
async def create_webhook(
    body: CreateWebhookRequest, session: Session, response: Response
) -> CreateWebhookResponse:
    """Creates an address that receives events by POST, and returns its secret once.

    Requests are signed as Standard Webhooks describe. A private address is refused when an event is
    sent, unless the operator allows it.
    """
    row = await queries.insert_webhook(session, body)
    await record_audit_event(session, "webhook.created", f"webhook:{row.id}", {"url": row.url})
    response.headers["Location"] = f"/api/v1/webhooks/{row.id}"
    return CreateWebhookResponse.from_row(row)


@router.get("", summary="List webhooks")
async def list_webhooks(session: Session, cursor: CursorQuery, limit: Limit = 50) -> WebhookPage:
    """Lists the webhooks of the tenant, newest first, without their secrets."""
    rows = await queries.list_webhooks(session, cursor=cursor, limit=limit)
    return to_page(WebhookPage, rows, limit)


@router.patch(
    "/{webhook_id}",
    summary="Change a webhook",
    responses=problems(404),
    openapi_extra=body_example(UPDATE_EXAMPLE),
)
async def update_webhook(
    webhook_id: UUID, body: UpdateWebhookRequest, session: Session
) -> WebhookEndpoint:
    """Changes the given fields. `POST …/rotate-secret` replaces the secret."""
    row = await queries.require_webhook(session, webhook_id, lock=True)
    changes: dict[str, Any] = {
        name: value
        for name, value in body.model_dump(exclude_unset=True).items()
        if (value is not None or name == "description") and value != getattr(row, name)
    }
    if changes:
        details = {"before": {name: getattr(row, name) for name in changes}, "after": changes}
        await record_audit_event(session, "webhook.updated", f"webhook:{row.id}", details)
    for name, value in changes.items():
        setattr(row, name, value)
    row.updated_at = datetime.now(UTC)
    return WebhookEndpoint.from_row(row)


@router.delete(
    "/{webhook_id}", status_code=204, summary="Delete a webhook", responses=problems(404)
)
async def delete_webhook(webhook_id: UUID, session: Session) -> None:
    """Deletes a webhook with the log of its deliveries. What waits is not sent."""
    row = await queries.require_webhook(session, webhook_id)
    await session.delete(row)
    await record_audit_event(session, "webhook.deleted", f"webhook:{row.id}", {"url": row.url})


@router.post(
    "/{webhook_id}/rotate-secret",
    summary="Replace the secret of a webhook",
    responses=problems(404),
    openapi_extra=body_example(ROTATE_EXAMPLE),
)
async def rotate_webhook_secret(
    webhook_id: UUID, body: RotateWebhookSecretRequest, session: Session
) -> CreateWebhookResponse:
    """Replaces the secret and returns the new one once.

    During the overlap, requests carry the signatures of both secrets, so a receiver accepts them
    before and after it changes its secret. A rotation during the overlap ends the oldest secret.
    """
    row = await queries.require_webhook(session, webhook_id, lock=True)
    now = datetime.now(UTC)
    overlap = timedelta(seconds=body.overlap_seconds)
    row.previous_secret = row.secret if overlap else None
    row.previous_secret_until = now + overlap if overlap else None
    row.secret, row.updated_at = queries.new_secret(), now
    details = {"overlap_seconds": body.overlap_seconds}
    await record_audit_event(session, "webhook.secret_rotated", f"webhook:{row.id}", details)
    return CreateWebhookResponse.from_row(row)


@router.post(
    "/{webhook_id}/test",
    status_code=202,
    summary="Send a test event",
    dependencies=[Depends(limit_requested_deliveries)],
    responses=problems(404, 409),
)
async def send_test_event(
    webhook_id: UUID, session: Session, runtime: RuntimeDep
) -> WebhookDelivery:
    """Sends the event `webhook.test`, signed and retried like the others.

    Every active webhook receives it, whatever its event types are.
    """
    webhook = await queries.require_webhook(session, webhook_id)
    if not webhook.active:
        raise Conflict("The webhook is paused. Set `active` to true first.")
    row = new_test_delivery(session, webhook)
    await enqueue_deliveries(runtime.queue, session, [row])
    await session.refresh(row)
    return WebhookDelivery.from_row(row)


@router.get(
    "/{webhook_id}/deliveries",
    summary="List the deliveries of a webhook",
    responses=problems(404),
)
async def list_webhook_deliveries(
    webhook_id: UUID,
    session: Session,
    cursor: CursorQuery,
    state: Annotated[DeliveryState | None, Query(description="Only this state.")] = None,
    limit: Limit = 50,
) -> WebhookDeliveryPage:
    """Lists what was sent or waits, newest first."""
    await queries.require_webhook(session, webhook_id)
    rows = await queries.list_deliveries(
        session, webhook_id, state=state, cursor=cursor, limit=limit
    )
    return to_page(WebhookDeliveryPage, rows, limit)


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/replay",
    status_code=202,
    summary="Send a delivery again",
    dependencies=[Depends(limit_requested_deliveries)],
    responses=problems(404, 409),
)
async def replay_webhook_delivery(
    webhook_id: UUID, delivery_id: UUID, session: Session, runtime: RuntimeDep
) -> WebhookDelivery:
    """Sends a delivery that has ended again, with the same `webhook-id`."""
    row = await queries.require_delivery(session, webhook_id, delivery_id)
    if row.finished_at is None:
        raise Conflict("The delivery has not ended yet. It is retried by itself.")
    row.state, row.finished_at, row.error = "queued", None, None
    row.run_id = new_delivery_run(session, row, row.payload["data"].get("project_id"))
    await enqueue_deliveries(runtime.queue, session, [row])
    return WebhookDelivery.from_row(row)
