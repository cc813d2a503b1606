"""The table of the upkeep schedule. The tables of the queue itself belong to pgqueuer."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime, Index
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Now, OptTime


class UpkeepScheduleRow(Base):
    """When a tenant needs upkeep next. `lane` is the tenant, as in the queue."""

    __tablename__ = "upkeep_schedule"
    __table_args__ = (Index("upkeep_schedule_due_at_idx", "due_at"),)

    lane: Mapped[UUID] = mapped_column(primary_key=True)
    due_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    claimed_until: Mapped[OptTime]
    active_at: Mapped[Now]
