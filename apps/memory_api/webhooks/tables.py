"""The tables of webhooks and their deliveries."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, Text, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Json, Now, OptStr, OptTime, Str, TenantId


class WebhookRow(Base):
    """An address of the tenant. Without `project_id`, it receives events of all projects."""

    __tablename__ = "webhooks"

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    project_id: Mapped[OptStr]
    url: Mapped[Str]
    event_types: Mapped[list[str]] = mapped_column(ARRAY(Text))
    secret: Mapped[Str]
    previous_secret: Mapped[OptStr]
    previous_secret_until: Mapped[OptTime]
    description: Mapped[OptStr]
    active: Mapped[bool] = mapped_column("is_active", server_default="true")
    created_at: Mapped[Now]
    updated_at: Mapped[Now]


class WebhookDeliveryRow(Base):
    """One event for one webhook."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "webhook_id"], ["webhooks.tenant_id", "webhooks.id"], ondelete="CASCADE"
        ),
        CheckConstraint("state in ('queued', 'retrying', 'delivered', 'failed')", name="state"),
        Index(
            "webhook_deliveries_created_at_idx",
            "tenant_id",
            "webhook_id",
            text("created_at desc"),
            text("id desc"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    webhook_id: Mapped[UUID]
    event_type: Mapped[Str]
    payload: Mapped[Json]
    state: Mapped[Str] = mapped_column(server_default="queued")
    attempt_count: Mapped[int] = mapped_column(server_default="0")
    response_status: Mapped[int | None]
    error: Mapped[OptStr]
    run_id: Mapped[UUID]
    created_at: Mapped[Now]
    finished_at: Mapped[OptTime]
