"""Sums of model calls by day, model, provider, purpose, project or playbook, and the cost of each
lesson.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Date, DateTime, Numeric, Text, Uuid, cast, column, func, select, table
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id

_CALLS = table(
    "llm_call_details",
    column("tenant_id", Uuid()),
    *(column(name, Text()) for name in ("provider", "model", "purpose", "project", "playbook")),
    column("status", Text()),
    *(
        column(name, Numeric())
        for name in ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
    ),
    column("cost_usd", Numeric()),
    column("created_at", DateTime(timezone=True)),
)
_LESSONS = table(
    "lesson_costs",
    column("tenant_id", Uuid()),
    column("project_id", Text()),
    column("memory_id", Uuid()),
    *(column(name, Numeric()) for name in ("calls", "input_tokens", "output_tokens")),
    column("cost_usd", Numeric()),
    column("created_at", DateTime(timezone=True)),
)
_TOKENS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
LESSON = "lesson_id"
MAX_LESSONS = 1000


@dataclass(frozen=True)
class UsageFilter:
    """Calls from `since`, included, to `until`, excluded; of one project or of all."""

    since: datetime
    until: datetime | None = None
    project_id: str | None = None


async def sum_usage(
    session: AsyncSession, group_by: Sequence[str], filter: UsageFilter
) -> Sequence[dict[str, Any]]:
    """Sums of model calls, one row per combination of `group_by` (day, model, provider, purpose,
    project_id, playbook).
    """
    calls = _CALLS.c
    dimensions = {
        "day": cast(func.timezone("UTC", calls.created_at), Date),
        "project_id": calls.project,
        **{name: calls[name] for name in ("model", "provider", "purpose", "playbook")},
    }
    keys = [dimensions[name].label(name) for name in group_by]
    query = (
        select(
            *keys,
            func.count().label("call_count"),
            func.count().filter(calls.status != "ok").label("failed_count"),
            func.count()
            .filter(calls.cost_usd.is_(None), calls.status == "ok")
            .label("unpriced_count"),
            *(func.coalesce(func.sum(calls[name]), 0).label(name) for name in _TOKENS),
            func.coalesce(func.sum(calls.cost_usd), 0).label("cost_usd"),
        )
        .where(calls.tenant_id == current_tenant_id(session), calls.created_at >= filter.since)
        .group_by(*keys)
        .order_by(*keys)
    )
    if filter.until is not None:
        query = query.where(calls.created_at < filter.until)
    if filter.project_id is not None:
        query = query.where(calls.project == filter.project_id)
    return [dict(row) for row in (await session.execute(query)).mappings()]


async def list_lesson_costs(session: AsyncSession, filter: UsageFilter) -> Sequence[dict[str, Any]]:
    """The cost of each lesson of this time, at most `MAX_LESSONS`, most expensive first. The calls
    for a trace are divided among its lessons.
    """
    lessons = _LESSONS.c
    query = (
        select(
            lessons.memory_id.label(LESSON),
            lessons.calls.label("call_count"),
            func.round(lessons.input_tokens).label("input_tokens"),
            func.round(lessons.output_tokens).label("output_tokens"),
            lessons.cost_usd,
        )
        .where(lessons.tenant_id == current_tenant_id(session), lessons.created_at >= filter.since)
        .order_by(lessons.cost_usd.desc(), lessons.memory_id)
        .limit(MAX_LESSONS)
    )
    if filter.until is not None:
        query = query.where(lessons.created_at < filter.until)
    if filter.project_id is not None:
        query = query.where(lessons.project_id == filter.project_id)
    zeros = {"failed_count": 0, "unpriced_count": 0, "cached_tokens": 0, "cache_write_tokens": 0}
    return [dict(row) | zeros for row in (await session.execute(query)).mappings()]
