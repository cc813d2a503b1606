"""Statements on the inbox of a playbook and on the state of its curation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import Integer, bindparam, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import compile_statement, fetch_column, fetch_value, load_statement
from memory_api.playbooks.tables import InboxLessonRow, PlaybookCurationRow, PlaybookRow

IS_REFLECTING = load_statement("playbooks/queries.sql", "is_reflecting")
UNFINISHED_RUNS = load_statement("playbooks/queries.sql", "unfinished_runs")
_LOCKED_CURATION = (
    select(PlaybookCurationRow)
    .where(
        PlaybookCurationRow.tenant_id == bindparam("tenant"),
        PlaybookCurationRow.scope_id == bindparam("scope"),
    )
    .with_for_update()
    .execution_options(populate_existing=True)
)
_COUNTED_LESSONS = (
    select(InboxLessonRow.id)
    .where(
        InboxLessonRow.tenant_id == bindparam("tenant"),
        InboxLessonRow.scope_id == bindparam("scope"),
    )
    .limit(bindparam("limit", type_=Integer))
)
_COUNT_LESSONS = compile_statement(select(func.count()).select_from(_COUNTED_LESSONS.subquery()))


async def lock_curation(session: AsyncSession, scope: int) -> PlaybookCurationRow:
    """The state of the playbook's curation, locked. Take no other lock after it."""
    await session.flush()
    parameters = {"tenant": current_tenant_id(session), "scope": scope}
    row = await session.scalar(_LOCKED_CURATION, parameters)
    if row is not None:
        return row
    await session.execute(
        upsert(PlaybookCurationRow)
        .values(tenant_id=current_tenant_id(session), scope_id=scope)
        .on_conflict_do_nothing()
    )
    row = await session.scalar(_LOCKED_CURATION, parameters)
    assert row is not None, "just created, and never removed"
    return row


async def get_curation(session: AsyncSession, scope: int) -> PlaybookCurationRow | None:
    return await session.scalar(
        select(PlaybookCurationRow).where(
            PlaybookCurationRow.tenant_id == current_tenant_id(session),
            PlaybookCurationRow.scope_id == scope,
        )
    )


async def find_unfinished_runs(session: AsyncSession, run_ids: Collection[UUID]) -> set[UUID]:
    """Those of these runs that are queued or running."""
    if not run_ids:
        return set()
    return set(await fetch_column(session, UNFINISHED_RUNS, {"runs": list(run_ids)}))


async def list_oldest_lessons(
    session: AsyncSession, scope: int, limit: int
) -> Sequence[InboxLessonRow]:
    rows = await session.scalars(
        select(InboxLessonRow)
        .where(
            InboxLessonRow.tenant_id == current_tenant_id(session),
            InboxLessonRow.scope_id == scope,
        )
        .order_by(InboxLessonRow.id)
        .limit(limit)
    )
    return rows.all()


async def list_taken_lessons(
    session: AsyncSession, scope: int, curation_run_id: UUID
) -> Sequence[InboxLessonRow]:
    """The lessons that this curation took and that are not decided, oldest first."""
    rows = await session.scalars(
        select(InboxLessonRow)
        .where(
            InboxLessonRow.tenant_id == current_tenant_id(session),
            InboxLessonRow.scope_id == scope,
            InboxLessonRow.curation_run_id == curation_run_id,
        )
        .order_by(InboxLessonRow.id)
    )
    return rows.all()


async def count_lessons(session: AsyncSession, scope: int, limit: int) -> int:
    return await fetch_value(session, _COUNT_LESSONS, {"scope": scope, "limit": limit})


async def is_reflecting(
    session: AsyncSession, playbook: PlaybookRow, except_run: UUID | None
) -> bool:
    """Whether a run, not `except_run`, evaluates or reflects on a trace of the playbook now, or is
    one of the next in the queue.
    """
    parameters = {
        "project": playbook.project_id,
        "playbook": playbook.name,
        "except_run": except_run,
    }
    return await fetch_value(session, IS_REFLECTING, parameters)


async def release_lessons(session: AsyncSession, scope: int) -> None:
    await session.execute(
        update(InboxLessonRow)
        .where(
            InboxLessonRow.tenant_id == current_tenant_id(session),
            InboxLessonRow.scope_id == scope,
            InboxLessonRow.curation_run_id.is_not(None),
        )
        .values(curation_run_id=None)
    )


async def delete_lessons(session: AsyncSession, scope: int, ids: Collection[UUID]) -> None:
    if not ids:
        return
    await session.execute(
        delete(InboxLessonRow).where(
            InboxLessonRow.tenant_id == current_tenant_id(session),
            InboxLessonRow.scope_id == scope,
            InboxLessonRow.id.in_(list(ids)),
        )
    )


async def list_playbooks_with_lessons(
    session: AsyncSession, older_than: datetime
) -> Sequence[PlaybookRow]:
    """The playbooks whose inbox holds a lesson from before this time, deleted ones included."""
    waiting = select(InboxLessonRow.scope_id).where(
        InboxLessonRow.tenant_id == current_tenant_id(session),
        InboxLessonRow.created_at < older_than,
    )
    rows = await session.scalars(
        select(PlaybookRow)
        .where(
            PlaybookRow.tenant_id == current_tenant_id(session), PlaybookRow.scope_id.in_(waiting)
        )
        .order_by(PlaybookRow.scope_id)
    )
    return rows.all()
