"""Tables of model calls, budgets, reservations, totals and alerts. In `project_id` and `purpose` of
budgets, totals and alerts, '' means all of them.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, DateTime, Index, Numeric, text
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Now, OptStr, OptTime, Str, TenantId


class LLMCallRow(Base):
    """One attempt: one HTTP exchange with a model. Never changed.

    `input_tokens` includes `cached_tokens` and `cache_write_tokens`. All are null without a reply;
    `cost_usd` is also null for an unknown price. `error` is an `LLMError.code` or "cancelled".
    """

    __tablename__ = "llm_calls"
    __table_args__ = (
        Index("llm_calls_created_at_idx", "tenant_id", text("created_at desc"), text("id desc")),
        Index("llm_calls_run_id_idx", "tenant_id", "run_id"),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    run_id: Mapped[UUID | None]
    project_id: Mapped[OptStr]
    provider: Mapped[Str]
    model: Mapped[Str]
    purpose: Mapped[Str]
    prompt_hash: Mapped[OptStr]
    status: Mapped[Str]
    error: Mapped[OptStr]
    error_detail: Mapped[OptStr]
    finish_reason: Mapped[OptStr]
    input_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    cache_write_tokens: Mapped[int | None]
    cost_usd: Mapped[Decimal | None] = mapped_column(Numeric)
    latency_ms: Mapped[int]
    request_id: Mapped[OptStr]
    created_at: Mapped[Now]


class BudgetRow(Base):
    """What may be spent on models per day or month (UTC): by the tenant, by one project, for one
    purpose, or for one purpose in one project. In US dollars, tokens, or both.

    `when_spent` is "refuse", or "rules" if the rules engine replaces the model.
    """

    __tablename__ = "budgets"
    __table_args__ = (
        CheckConstraint("period in ('day', 'month')", name="period"),
        CheckConstraint("limit_usd >= 0", name="limit_usd"),
        CheckConstraint("limit_tokens >= 0", name="limit_tokens"),
        CheckConstraint("limit_usd is not null or limit_tokens is not null", name="limit"),
        CheckConstraint("when_spent in ('refuse', 'rules')", name="when_spent"),
    )

    tenant_id: Mapped[TenantId]
    period: Mapped[Str] = mapped_column(primary_key=True)
    project_id: Mapped[Str] = mapped_column(primary_key=True, server_default="")
    purpose: Mapped[Str] = mapped_column(primary_key=True, server_default="")
    limit_usd: Mapped[Decimal | None] = mapped_column(Numeric)
    limit_tokens: Mapped[int | None] = mapped_column(BigInteger)
    allow_unknown_price: Mapped[bool] = mapped_column(server_default="false")
    when_spent: Mapped[Str] = mapped_column(server_default="refuse")
    updated_at: Mapped[Now]


class BudgetReservationRow(Base):
    """The maximum cost of one call, and after it is settled its actual cost.

    A reservation that expired because its process ended is settled with its maximum: the provider
    may have charged the call.
    """

    __tablename__ = "budget_reservations"
    __table_args__ = (
        Index(
            "budget_reservations_created_at_idx",
            "tenant_id",
            "created_at",
            postgresql_include=["amount_usd", "expires_at", "settled_at"],
        ),
        Index(
            "budget_reservations_open_idx",
            "tenant_id",
            "expires_at",
            postgresql_where=text("settled_at is null"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    run_id: Mapped[UUID | None]
    project_id: Mapped[Str] = mapped_column(server_default="")
    provider: Mapped[Str]
    model: Mapped[Str]
    purpose: Mapped[Str]
    amount_usd: Mapped[Decimal | None] = mapped_column(Numeric)
    amount_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    is_expired: Mapped[bool] = mapped_column(server_default="false")
    created_at: Mapped[Now]
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    settled_at: Mapped[OptTime]


class BudgetTotalRow(Base):
    """What one day or month has cost, and what is reserved in it, by project and purpose."""

    __tablename__ = "budget_totals"
    __table_args__ = (Index("budget_totals_starts_on_idx", "tenant_id", "starts_on"),)

    tenant_id: Mapped[TenantId]
    period: Mapped[Str] = mapped_column(primary_key=True)
    starts_on: Mapped[date] = mapped_column(primary_key=True)
    project_id: Mapped[Str] = mapped_column(primary_key=True)
    purpose: Mapped[Str] = mapped_column(primary_key=True)
    spent_usd: Mapped[Decimal] = mapped_column(Numeric, server_default="0")
    reserved_usd: Mapped[Decimal] = mapped_column(Numeric, server_default="0")
    spent_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    reserved_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")


class BudgetAlertRow(Base):
    """A threshold, in percent of its limit, that a budget reached in one period."""

    __tablename__ = "budget_alerts"
    __table_args__ = (CheckConstraint("unit in ('usd', 'tokens')", name="unit"),)

    tenant_id: Mapped[TenantId]
    period: Mapped[Str] = mapped_column(primary_key=True)
    starts_on: Mapped[date] = mapped_column(primary_key=True)
    project_id: Mapped[Str] = mapped_column(primary_key=True)
    purpose: Mapped[Str] = mapped_column(primary_key=True)
    unit: Mapped[Str] = mapped_column(primary_key=True)
    percent: Mapped[int] = mapped_column(primary_key=True)
    limit_amount: Mapped[Decimal] = mapped_column(Numeric)
    spent_amount: Mapped[Decimal] = mapped_column(Numeric)
    created_at: Mapped[Now]
