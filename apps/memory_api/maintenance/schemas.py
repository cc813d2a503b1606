"""Maintenance tasks on the wire."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from memory_api.core.schemas import (
    Name,
    Page,
    RequestModel,
    ResponseModel,
    UtcDatetime,
    with_examples,
)

MAX_CHOSEN_TRACES = 100
"""Traces that a request may choose for dreaming."""


class MaintenanceTaskName(StrEnum):
    """`upkeep` does what is due every few minutes; the others have a period of their own."""

    UPKEEP = "upkeep"
    INDEXES = "indexes"
    RETENTION = "retention"
    SUMMARIES = "summaries"
    DREAMING = "dreaming"
    ENTITIES = "entities"
    CLUSTERS = "clusters"
    PRUNING = "pruning"


class StartMaintenanceRequest(RequestModel):
    """Options of a maintenance task."""

    apply: bool = Field(
        default=False,
        description="For `pruning`: archive the memories of the latest report. Else: only report.",
    )
    trace_ids: list[UUID] = Field(
        default_factory=list[UUID],
        max_length=MAX_CHOSEN_TRACES,
        description="For `dreaming`: read these traces instead of the recent episodes.",
    )
    session_ids: list[Name] = Field(
        default_factory=list[Name],
        max_length=MAX_CHOSEN_TRACES,
        description="For `dreaming`: read the traces of these sessions.",
    )


class MaintenanceSchedule(ResponseModel):
    """A task of the tenant."""

    model_config = with_examples(
        {
            "task": "indexes",
            "period": "hour",
            "scheduled": True,
            "started_at": "2026-11-21T02:00:11Z",
            "next_at": "2026-11-22T02:00:00Z",
        }
    )

    task: MaintenanceTaskName
    period: str = Field(description="`hour`, `day` or `week`; for upkeep `activity`.")
    scheduled: bool = Field(description="False if the settings leave the task to requests.")
    started_at: UtcDatetime | None = Field(description="The latest start on the schedule.")
    next_at: UtcDatetime | None = Field(
        description="The earliest next start. An idle tenant's tasks start within a week."
    )


class MaintenanceSchedulePage(Page[MaintenanceSchedule]):
    """All tasks of the tenant."""
