"""Tables of agent runs: their plan, steps, events and interventions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Computed, Double, ForeignKeyConstraint, Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import (
    Base,
    Id,
    Json,
    Now,
    OptJson,
    OptStr,
    OptTime,
    Str,
    StrList,
    TenantId,
)

COST_UNKNOWN = "cost_unknown"
"""The name in `options` of a run whose model has no known price, and of its event."""
CANCEL_REASON = "cancel_reason"
"""The name in `options` of the `error` of a run that no person cancelled."""


def _of_agent_run() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["tenant_id", "agent_run_id"], ["agent_runs.tenant_id", "agent_runs.id"], ondelete="CASCADE"
    )


class AgentRunRow(Base):
    """One run of the agent. `active_run_id` is the row of `runs` that may work on it."""

    __tablename__ = "agent_runs"
    __table_args__ = (
        CheckConstraint(
            "state in ('queued', 'running', 'waiting', 'done', 'failed', 'cancelled')", name="state"
        ),
        CheckConstraint("feedback in ('right', 'wrong')", name="feedback"),
        Index("agent_runs_created_at_idx", "tenant_id", text("created_at desc"), text("id desc")),
        Index(
            "agent_runs_feedback_at_idx",
            "tenant_id",
            "project_id",
            "feedback_at",
            postgresql_where=text("feedback is not null"),
        ),
        Index(
            "agent_runs_trace_id_idx",
            "tenant_id",
            "trace_id",
            postgresql_where=text("trace_id is not null"),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    project_id: Mapped[Str]
    query: Mapped[Str]
    playbook: Mapped[OptStr]
    collections: Mapped[StrList]
    state: Mapped[Str] = mapped_column(server_default="queued")
    plan: Mapped[OptJson]
    retrieval_id: Mapped[UUID | None]
    result: Mapped[OptJson]
    error: Mapped[OptJson]
    options: Mapped[Json]
    active_run_id: Mapped[UUID | None]
    cancel_requested: Mapped[bool] = mapped_column(server_default="false")
    plan_number: Mapped[int] = mapped_column(server_default="0")
    replan_count: Mapped[int] = mapped_column(server_default="0")
    replanned_at: Mapped[OptTime]
    round_count: Mapped[int] = mapped_column(server_default="0")
    """Interventions that a person was asked for."""
    token_count: Mapped[int] = mapped_column(server_default="0")
    cost_usd: Mapped[float] = mapped_column(Double, server_default="0")
    event_count: Mapped[int] = mapped_column(server_default="0")
    trace_id: Mapped[UUID | None]
    feedback: Mapped[OptStr]
    feedback_at: Mapped[OptTime]
    feedback_answer: Mapped[OptStr]
    confidence: Mapped[float | None] = mapped_column(
        Double,
        Computed("(result ->> 'calibrated_confidence')::double precision", persisted=True),
    )
    created_at: Mapped[Now]
    started_at: Mapped[OptTime]
    finished_at: Mapped[OptTime]
    updated_at: Mapped[Now]

    @property
    def known_cost_usd(self) -> float | None:
        """None if the price of the model is unknown."""
        return None if COST_UNKNOWN in self.options else self.cost_usd


class AgentStepRow(Base):
    """One plan step. A replan writes the steps of the new plan under the next `plan_number`."""

    __tablename__ = "agent_steps"
    __table_args__ = (
        _of_agent_run(),
        CheckConstraint(
            "state in ('pending', 'running', 'success', 'partial', 'failed', 'skipped')",
            name="state",
        ),
    )

    tenant_id: Mapped[TenantId]
    agent_run_id: Mapped[Id]
    plan_number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    step_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    spec: Mapped[dict[str, Any]] = mapped_column(JSONB)
    state: Mapped[Str] = mapped_column(server_default="pending")
    attempt_count: Mapped[int] = mapped_column(server_default="0")
    result: Mapped[OptJson]
    confidence: Mapped[float | None] = mapped_column(Double)
    started_at: Mapped[OptTime]
    finished_at: Mapped[OptTime]


class AgentEventRow(Base):
    """What happened in a run, numbered from 1 without gaps."""

    __tablename__ = "agent_events"
    __table_args__ = (_of_agent_run(),)

    tenant_id: Mapped[TenantId]
    agent_run_id: Mapped[Id]
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[Str]
    data: Mapped[Json]
    created_at: Mapped[Now]


class InterventionRow(Base):
    """A question to a person."""

    __tablename__ = "interventions"
    __table_args__ = (
        _of_agent_run(),
        CheckConstraint("state in ('open', 'answered', 'expired', 'cancelled')", name="state"),
        Index("interventions_agent_run_id_idx", "tenant_id", "agent_run_id", "created_at"),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    agent_run_id: Mapped[UUID]
    kind: Mapped[Str]
    level: Mapped[Str]
    step_id: Mapped[int | None]
    message: Mapped[Str]
    options: Mapped[StrList]
    state: Mapped[Str] = mapped_column(server_default="open")
    action: Mapped[OptStr]
    input: Mapped[OptStr]
    default_action: Mapped[Str]
    actor: Mapped[OptStr]
    expires_at: Mapped[OptTime]
    created_at: Mapped[Now]
    answered_at: Mapped[OptTime]


class AgentCalibrationRow(Base):
    """What a project learned from feedback: thresholds, and the temperature of its scores."""

    __tablename__ = "agent_calibrations"

    tenant_id: Mapped[TenantId]
    project_id: Mapped[Str] = mapped_column(primary_key=True)
    silent: Mapped[float] = mapped_column(Double)
    notify: Mapped[float] = mapped_column(Double)
    confirm: Mapped[float] = mapped_column(Double)
    temperature: Mapped[float] = mapped_column(Double, server_default="1")
    ece: Mapped[float | None] = mapped_column(Double)
    sample_count: Mapped[int] = mapped_column(server_default="0")
    judged_until: Mapped[OptTime]
    """Feedback up to this time has adjusted the thresholds: each item counts once."""
    counted_from: Mapped[OptTime]
    """Feedback up to this time does not count for the temperature: the last reset."""
    updated_at: Mapped[Now]
