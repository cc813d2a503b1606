"""Runs: the truth about all work. The queue only says that there is some."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Computed, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Id, Json, Now, OptJson, OptStr, OptTime, Str, TenantId


class RunRow(Base):
    """One execution of background or foreground work (DESIGN section 3)."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("runs_created_at_idx", "tenant_id", text("created_at desc"), text("id desc")),
        Index(
            "runs_state_created_at_idx",
            "tenant_id",
            "state",
            text("created_at desc"),
            text("id desc"),
        ),
        Index(
            "runs_trace_id_idx",
            "tenant_id",
            "trace_id",
            postgresql_where=text("trace_id is not null"),
        ),
        Index(
            "runs_unfinished_idx",
            "tenant_id",
            "updated_at",
            postgresql_where=text("state in ('queued', 'running')"),
        ),
        Index(
            "runs_waiting_reflections_idx",
            "tenant_id",
            "playbook",
            postgresql_where=text("state = 'queued' and kind = 'reflect' and playbook is not null"),
        ),
        Index(
            "runs_kind_finished_at_idx",
            "tenant_id",
            "kind",
            text("finished_at desc"),
            postgresql_where=text(
                "kind in ('upkeep', 'cleanup', 'maintenance', 'webhook', 'budget_alert', 'erasure')"
            ),
        ),
    )

    tenant_id: Mapped[TenantId]
    id: Mapped[Id]
    project_id: Mapped[Str] = mapped_column(server_default="default")
    kind: Mapped[Str]
    state: Mapped[Str] = mapped_column(server_default="queued")
    parent_id: Mapped[UUID | None]
    trace_id: Mapped[UUID | None]
    input: Mapped[Json]
    playbook: Mapped[OptStr] = mapped_column(Computed("input ->> 'playbook'", persisted=True))
    attempt_count: Mapped[int] = mapped_column("attempts", server_default="0")
    max_attempts: Mapped[int] = mapped_column(server_default="5")
    lease_until: Mapped[OptTime]
    lease_owner: Mapped[OptStr]
    error: Mapped[OptJson]
    result: Mapped[OptJson]
    engine: Mapped[OptStr]
    degraded: Mapped[bool] = mapped_column(server_default="false")
    prompt_hash: Mapped[OptStr]
    usage: Mapped[OptJson]
    created_at: Mapped[Now]
    started_at: Mapped[OptTime]
    finished_at: Mapped[OptTime]
    updated_at: Mapped[Now]
