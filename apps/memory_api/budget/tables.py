"""What was asked of models, and what it cost."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from uuid import UUID

from sqlalchemy import CheckConstraint, DateTime, Index, Numeric, text
from sqlalchemy.orm import Mapped, mapped_column

from apps.memory_api.core.columns import Id, Now, OptStr, OptTime, Str, TenantId
from apps.memory_api.core.db import Base


class LLMCall(Base):
    """One attempt: one HTTP exchange with a model. Written once and never changed.

    `input_tokens` includes `cached_tokens` and `cache_write_tokens`; all are null when nobody
    counted, `usd` also when the price is unknown. `error` is an `LLMError.code` or "cancelled".
    """

    __tablename__ = "llm_calls"
    __table_args__ = (
        Index("llm_calls_listed_idx", "tenant_id", text("created_at desc"), text("id desc")),
        Index("llm_calls_by_run_idx", "tenant_id", "run_id"),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    run_id: Mapped[UUID | None]
    provider: Mapped[Str]
    model: Mapped[Str]
    purpose: Mapped[Str]
    prompt_hash: Mapped[OptStr]
    status: Mapped[Str]
    error: Mapped[OptStr]
    detail: Mapped[OptStr]
    finish_reason: Mapped[OptStr]
    input_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    cache_write_tokens: Mapped[int | None]
    usd: Mapped[Decimal | None] = mapped_column(Numeric)
    latency_ms: Mapped[int]
    request_id: Mapped[OptStr]
    created_at: Mapped[Now]


class BudgetRow(Base):
    """What a tenant may spend in a day or a month, in US dollars."""

    __tablename__ = "budgets"
    __table_args__ = (
        CheckConstraint("period in ('day', 'month')", name="period"),
        CheckConstraint("usd >= 0", name="usd"),
    )

    tenant_id: Mapped[TenantId]
    period: Mapped[Str] = mapped_column(primary_key=True)
    usd: Mapped[Decimal] = mapped_column(Numeric)
    allow_unknown_price: Mapped[bool] = mapped_column(server_default="false")
    updated_at: Mapped[Now]


class Reservation(Base):
    """What one call may cost, until it is settled: then what it did cost. One that expired without
    counts nothing: its process died.
    """

    __tablename__ = "budget_reservations"
    __table_args__ = (
        Index(
            "budget_reservations_spent_idx",
            "tenant_id",
            "created_at",
            postgresql_include=["usd", "expires_at", "settled_at"],
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    run_id: Mapped[UUID | None]
    provider: Mapped[Str]
    model: Mapped[Str]
    purpose: Mapped[Str]
    usd: Mapped[Decimal | None] = mapped_column(Numeric)
    created_at: Mapped[Now]
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    settled_at: Mapped[OptTime]
