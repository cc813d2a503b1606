"""Which advice agents had in their prompt, and how their runs ended."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.playbooks.tables import RetrievalRow
from memory_api.traces.tables import TraceRow

MAX_COUNTED_TRACES = 1_000
ADVICE = ("with", "control", "none")
"""What an agent had in its prompt: bullets, nothing because a hold-out withheld them, or nothing
that is known.
"""


def had_advice(advice: str) -> list[ColumnElement[bool]]:
    """The condition of the traces with one of `ADVICE`; none for an empty text."""
    retrieval = exists().where(*retrieval_of_trace())
    has = or_(retrieval.where(_has_bullets()), func.cardinality(TraceRow.used_bullet_keys) > 0)
    is_control = retrieval.where(RetrievalRow.advice_held_out.is_(True))
    conditions = {"with": has, "control": is_control, "none": and_(not_(has), not_(is_control))}
    return [conditions[advice]] if advice else []


async def load_advice(session: AsyncSession, trace_ids: Collection[UUID]) -> dict[UUID, Any]:
    """Trace ID → `advice`, one of `ADVICE`, and `bullet_keys`, the bullets in the prompt; None if
    they are not known.
    """
    statement = (
        select(TraceRow.id, advice_column().label("advice"), RetrievalRow.bullet_keys)
        .outerjoin(RetrievalRow, and_(*retrieval_of_trace()))
        .where(TraceRow.tenant_id == current_tenant_id(session), TraceRow.id.in_(trace_ids))
    )
    return {row.id: row for row in (await session.execute(statement)).all()}


async def count_newest(session: AsyncSession, query: Select[TraceRow]) -> Any:
    """Of the newest 1,000 traces of a query: `count`, `success_count`, and the same of those with
    advice (`with_count`, `with_success_count`), of controls (`control_count`, …), and of the
    others that have a playbook (`none_count`, …).
    """
    newest = (
        query.with_only_columns(TraceRow.id)
        .order_by(TraceRow.created_at.desc(), TraceRow.id.desc())
        .limit(MAX_COUNTED_TRACES)
        .subquery()
    )
    outcome = func.coalesce(TraceRow.effective_outcome, TraceRow.outcome)
    rows = (
        select(advice_column().label("advice"), outcome.label("outcome"), TraceRow.playbook)
        .join(newest, newest.c.id == TraceRow.id)
        .outerjoin(RetrievalRow, and_(*retrieval_of_trace()))
        .where(TraceRow.tenant_id == current_tenant_id(session))
        .subquery()
    )
    count, is_success = func.count(), rows.c.outcome == "success"
    is_other = and_(rows.c.advice == "none", rows.c.playbook.is_not(None))
    statement = select(
        count.label("count"),
        count.filter(is_success).label("success_count"),
        count.filter(rows.c.advice == "with").label("with_count"),
        count.filter(rows.c.advice == "with", is_success).label("with_success_count"),
        count.filter(rows.c.advice == "control").label("control_count"),
        count.filter(rows.c.advice == "control", is_success).label("control_success_count"),
        count.filter(is_other).label("none_count"),
        count.filter(is_other, is_success).label("none_success_count"),
    )
    return (await session.execute(statement)).one()


def retrieval_of_trace() -> list[ColumnElement[bool]]:
    return [
        RetrievalRow.tenant_id == TraceRow.tenant_id,
        RetrievalRow.id == TraceRow.retrieval_id,
    ]


def _has_bullets() -> ColumnElement[bool]:
    return and_(
        RetrievalRow.advice_held_out.is_not(True), func.cardinality(RetrievalRow.bullet_keys) > 0
    )


def advice_column() -> ColumnElement[str]:
    return case(
        (RetrievalRow.advice_held_out.is_(True), "control"),
        (or_(_has_bullets(), func.cardinality(TraceRow.used_bullet_keys) > 0), "with"),
        else_="none",
    )
