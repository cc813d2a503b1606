"""The tables of the queue and of the upkeep schedule."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, DateTime, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Now, OptStr, OptTime, Str


class TicketRow(Base):
    """A ticket. `lane` is its tenant, `slots` the slots of a worker that it uses."""

    __tablename__ = "tickets"
    __table_args__ = (
        CheckConstraint("slots in ('work', 'delivery', 'document')", name="slots"),
        Index(
            *("tickets_lane_due_at_idx", "slots", "lane", "due_at", "id"),
            postgresql_where=text("taken_by is null"),
        ),
        Index(
            *("tickets_heartbeat_at_idx", "slots", "heartbeat_at"),
            postgresql_where=text("taken_by is not null"),
        ),
        Index("tickets_run_id_idx", "run_id"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    lane: Mapped[UUID]
    run_id: Mapped[UUID]
    slots: Mapped[Str] = mapped_column(server_default="work")
    queued_at: Mapped[Now]
    due_at: Mapped[Now]
    taken_by: Mapped[UUID | None]
    taken_at: Mapped[OptTime]
    heartbeat_at: Mapped[OptTime]
    traceparent: Mapped[OptStr]


class UpkeepScheduleRow(Base):
    """When a tenant needs upkeep next. `lane` is the tenant, as in the queue."""

    __tablename__ = "upkeep_schedule"
    __table_args__ = (Index("upkeep_schedule_due_at_idx", "due_at"),)

    lane: Mapped[UUID] = mapped_column(primary_key=True)
    due_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    claimed_until: Mapped[OptTime]
    active_at: Mapped[Now]
