"""Statements on webhooks and their deliveries."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.errors import Conflict, NotFound
from memory_api.core.ids import new_id
from memory_api.core.pagination import Cursor, keyset_page
from memory_api.core.tenant_locks import acquire_tenant_lock
from memory_api.webhooks.delivery import SECRET_PREFIX
from memory_api.webhooks.schemas import CreateWebhookRequest
from memory_api.webhooks.tables import WebhookDeliveryRow, WebhookRow

MAX_WEBHOOKS = 50
"""Webhooks of one tenant."""
SECRET_BYTES = 32


async def insert_webhook(session: AsyncSession, body: CreateWebhookRequest) -> WebhookRow:
    """Raises `Conflict` if the tenant has `MAX_WEBHOOKS`."""
    await acquire_tenant_lock(session, "webhooks")
    tenant_id = current_tenant_id(session)
    count = await session.scalar(
        select(func.count()).select_from(WebhookRow).where(WebhookRow.tenant_id == tenant_id)
    )
    if (count or 0) >= MAX_WEBHOOKS:
        raise Conflict(f"A tenant has at most {MAX_WEBHOOKS} webhooks. Delete one first.")
    row = WebhookRow(tenant_id=tenant_id, id=new_id(), secret=new_secret(), **body.model_dump())
    session.add(row)
    await session.flush()
    await session.refresh(row)
    return row


def new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


async def require_webhook(
    session: AsyncSession, webhook_id: UUID, *, lock: bool = False
) -> WebhookRow:
    """Raises `NotFound`."""
    key = current_tenant_id(session), webhook_id
    row = await session.get(WebhookRow, key, with_for_update=True if lock else None)
    if row is None:
        raise NotFound("Webhook not found.")
    return row


async def list_webhooks(
    session: AsyncSession, *, cursor: Cursor | None, limit: int
) -> Sequence[WebhookRow]:
    """Newest first; one row more than `limit` when there is a next page."""
    query = select(WebhookRow).where(WebhookRow.tenant_id == current_tenant_id(session))
    query = keyset_page(query, WebhookRow.created_at, WebhookRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def list_deliveries(
    session: AsyncSession,
    webhook_id: UUID,
    *,
    state: str | None,
    cursor: Cursor | None,
    limit: int,
) -> Sequence[WebhookDeliveryRow]:
    """Newest first; one row more than `limit` when there is a next page."""
    query = select(WebhookDeliveryRow).where(
        WebhookDeliveryRow.tenant_id == current_tenant_id(session),
        WebhookDeliveryRow.webhook_id == webhook_id,
    )
    if state is not None:
        query = query.where(WebhookDeliveryRow.state == state)
    query = keyset_page(query, WebhookDeliveryRow.created_at, WebhookDeliveryRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def delete_finished_deliveries(session: AsyncSession, before: datetime) -> None:
    """Delete deliveries of the session's tenant that ended before this time."""
    await session.execute(
        delete(WebhookDeliveryRow).where(
            WebhookDeliveryRow.tenant_id == current_tenant_id(session),
            WebhookDeliveryRow.finished_at < before,
        )
    )


async def require_delivery(
    session: AsyncSession, webhook_id: UUID, delivery_id: UUID
) -> WebhookDeliveryRow:
    """The locked delivery. Raises `NotFound`."""
    row = await session.scalar(
        select(WebhookDeliveryRow)
        .where(
            WebhookDeliveryRow.tenant_id == current_tenant_id(session),
            WebhookDeliveryRow.webhook_id == webhook_id,
            WebhookDeliveryRow.id == delivery_id,
        )
        .with_for_update()
    )
    if row is None:
        raise NotFound("Delivery not found.")
    return row
