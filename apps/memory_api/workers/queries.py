"""Statements of the work done on a schedule or by a command."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.jobs.tables import Run


async def open_run(session: AsyncSession, kind: str) -> Run | None:
    """The run of a kind that waits or is at work."""
    return await session.scalar(
        select(Run)
        .where(
            Run.tenant_id == tenant_of(session),
            Run.kind == kind,
            Run.state.in_(("queued", "running")),
        )
        .order_by(Run.created_at.desc(), Run.id.desc())
        .limit(1)
        .with_for_update()
    )


async def note_progress(session: AsyncSession, run: Run, progress: dict[str, Any]) -> bool:
    """What a run has done so far, for those who look at it; False when its holder has lost it."""
    found = await session.scalar(
        update(Run)
        .where(
            Run.tenant_id == tenant_of(session),
            Run.id == run.id,
            Run.lease_owner == run.lease_owner,
            Run.state == "running",
        )
        .values(result=progress)
        .returning(Run.id)
    )
    return found is not None
