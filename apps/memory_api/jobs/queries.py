"""Reading runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.cursor import Cursor, after
from apps.memory_api.core.db import tenant_of
from apps.memory_api.jobs.tables import Run

_RUN = select(Run).where(Run.tenant_id == bindparam("tenant"), Run.id == bindparam("run"))


async def get_run(session: AsyncSession, run_id: UUID) -> Run | None:
    return await session.scalar(_RUN, {"tenant": tenant_of(session), "run": run_id})


async def list_runs(
    session: AsyncSession,
    *,
    project_id: str | None = None,
    states: Sequence[str] = (),
    kind: str | None = None,
    trace_id: UUID | None = None,
    parent: Run | None = None,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Sequence[Run]:
    """Newest first; one row more than `limit` when there is a next page. With `parent`, the steps
    that follow it.
    """
    query = select(Run).where(Run.tenant_id == tenant_of(session))
    if project_id is not None:
        query = query.where(Run.project_id == project_id)
    if states:
        query = query.where(Run.state.in_(states))
    if kind is not None:
        query = query.where(Run.kind == kind)
    if trace_id is not None:
        query = query.where(Run.trace_id == trace_id)
    if parent is not None:
        query = query.where(Run.parent_id == parent.id)
        if parent.trace_id is not None:  # a chain is about one trace, and by trace it is found fast
            query = query.where(Run.trace_id == parent.trace_id)
    query = after(query, Run.created_at, Run.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def is_queued(session: AsyncSession, kind: str, since: datetime) -> bool:
    """Whether a run of this kind waits that was queued after `since`."""
    found = await session.scalar(
        select(Run.id)
        .where(
            Run.tenant_id == tenant_of(session),
            Run.kind == kind,
            Run.state == "queued",
            Run.updated_at > since,
        )
        .limit(1)
    )
    return found is not None


async def forget_done(session: AsyncSession, kind: str, before: datetime) -> None:
    """Delete runs of a kind that is worth keeping only while it is new. Dead ones stay."""
    await session.execute(
        delete(Run).where(
            Run.tenant_id == tenant_of(session),
            Run.kind == kind,
            Run.state == "done",
            Run.created_at < before,
        )
    )


async def latest_runs(
    session: AsyncSession, trace_ids: Sequence[UUID], *kinds: str
) -> dict[UUID, Run]:
    """`latest_run` of many traces, by trace; without those that have none."""
    if not trace_ids:
        return {}
    found = await session.scalars(
        select(Run)
        .where(
            Run.tenant_id == tenant_of(session),
            Run.trace_id.in_(trace_ids),
            Run.kind.in_(kinds),
        )
        .order_by(Run.created_at, Run.id)
    )
    return {run.trace_id: run for run in found if run.trace_id is not None}


async def latest_run(session: AsyncSession, trace_id: UUID, *kinds: str) -> Run | None:
    """The newest run of any of these kinds for one trace."""
    return await session.scalar(
        select(Run)
        .where(Run.tenant_id == tenant_of(session), Run.trace_id == trace_id, Run.kind.in_(kinds))
        .order_by(Run.created_at.desc(), Run.id.desc())
        .limit(1)
    )
