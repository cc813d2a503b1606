"""Statements of the console: its sessions, and what only its pages count."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    UUID as UUIDType,
)
from sqlalchemy import (
    Date,
    DateTime,
    Select,
    Text,
    and_,
    cast,
    column,
    delete,
    func,
    literal,
    or_,
    select,
    table,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.auth.queries import tenant_is_active
from memory_api.auth.tables import ApiKeyRow
from memory_api.console.paging import MAX_COUNTED
from memory_api.console.tables import ConsoleSessionRow
from memory_api.core.db import current_tenant_id
from memory_api.curation.tables import CuratedLessonRow
from memory_api.grace.tables import AgentRunRow
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.tables import BulletVerdictRow, PlaybookRow, ProposalRow
from memory_api.runs.tables import RunRow
from memory_api.traces.tables import TraceRow

COUNTED = table(
    "counted_verdicts",
    column("tenant_id", UUIDType),
    column("id", UUIDType),
    column("bullet_id", UUIDType),
    column("trace_id", UUIDType),
    column("run_id", UUIDType),
    column("tag", Text),
    column("created_at", DateTime(timezone=True)),
)
"""The view of the verdicts that the counters of bullets include."""
MAX_COUNTED_RUNS = 1_000


async def count_rows(session: AsyncSession, query: Select[Any]) -> int:
    """Rows of a query, at most `MAX_COUNTED` + 1."""
    some = query.with_only_columns(literal(1)).order_by(None).limit(MAX_COUNTED + 1).subquery()
    return (await session.execute(select(func.count()).select_from(some))).scalar_one()


async def count_in_project(session: AsyncSession, row: Any, project: str | None) -> int:
    """The rows of a table in a project, or in all."""
    query = select(row).where(row.tenant_id == current_tenant_id(session))
    if project is not None:
        query = query.where(row.project_id == project)
    return await count_rows(session, query)


async def get_valid_session(
    session: AsyncSession, secret_hash: bytes, idle_since: datetime
) -> tuple[ConsoleSessionRow, ApiKeyRow] | None:
    """Get a session by the hash of its token, with its API key. None if it has expired, was not
    used after `idle_since`, or its key is revoked or expired or the tenant is not active.
    """
    key = ApiKeyRow
    statement = (
        select(ConsoleSessionRow, key)
        .join(
            key,
            (key.tenant_id == ConsoleSessionRow.tenant_id) & (key.id == ConsoleSessionRow.key_id),
        )
        .where(
            ConsoleSessionRow.tenant_id == current_tenant_id(session),
            ConsoleSessionRow.secret_hash == secret_hash,
            ConsoleSessionRow.expires_at > func.now(),
            ConsoleSessionRow.last_used_at > idle_since,
            key.revoked_at.is_(None),
            key.expires_at.is_(None) | (key.expires_at > func.now()),
            tenant_is_active(literal(current_tenant_id(session))),
        )
    )
    row = (await session.execute(statement)).first()
    return None if row is None else (row[0], row[1])


async def mark_session_used(session: AsyncSession, secret_hash: bytes) -> None:
    await session.execute(
        update(ConsoleSessionRow)
        .where(
            ConsoleSessionRow.tenant_id == current_tenant_id(session),
            ConsoleSessionRow.secret_hash == secret_hash,
        )
        .values(last_used_at=func.now())
    )


async def delete_session(session: AsyncSession, secret_hash: bytes) -> None:
    await session.execute(
        delete(ConsoleSessionRow).where(
            ConsoleSessionRow.tenant_id == current_tenant_id(session),
            ConsoleSessionRow.secret_hash == secret_hash,
        )
    )


async def delete_ended_sessions(session: AsyncSession, idle_since: datetime) -> None:
    """Delete the sessions of the tenant that can no longer be used."""
    await session.execute(
        delete(ConsoleSessionRow).where(
            ConsoleSessionRow.tenant_id == current_tenant_id(session),
            or_(
                ConsoleSessionRow.expires_at <= func.now(),
                ConsoleSessionRow.last_used_at <= idle_since,
            ),
        )
    )


async def count_verdicts_by_week(
    session: AsyncSession, bullet_id: UUID, since: datetime
) -> Sequence[Any]:
    """`week` (its Monday), `helpful_count` and `harmful_count` of a bullet, counted as its counters
    are. Weeks without a verdict are left out.
    """
    week = cast(func.date_trunc("week", COUNTED.c.created_at), Date).label("week")
    statement = (
        select(
            week,
            func.count().filter(COUNTED.c.tag == "helpful").label("helpful_count"),
            func.count().filter(COUNTED.c.tag == "harmful").label("harmful_count"),
        )
        .where(*_counted_on(session, bullet_id), COUNTED.c.created_at >= since)
        .group_by(week)
        .order_by(week)
    )
    return (await session.execute(statement)).all()


async def list_counted_verdicts(
    session: AsyncSession, bullet_id: UUID, limit: int
) -> Sequence[BulletVerdictRow]:
    """The verdicts that the counters of a bullet include, newest first."""
    row = BulletVerdictRow
    statement = (
        select(row)
        .join(COUNTED, and_(COUNTED.c.tenant_id == row.tenant_id, COUNTED.c.id == row.id))
        .where(*_counted_on(session, bullet_id))
        .order_by(row.created_at.desc(), row.id.desc())
        .limit(limit)
    )
    return (await session.scalars(statement)).all()


def _counted_on(session: AsyncSession, bullet_id: UUID) -> list[Any]:
    return [COUNTED.c.tenant_id == current_tenant_id(session), COUNTED.c.bullet_id == bullet_id]


async def list_newest_bullets(session: AsyncSession, project: str, limit: int) -> Sequence[Any]:
    """The bullets that were added last and are not removed: of `playbook`, `key`, `when_to_use`,
    `content`, `status`, `created_at`.
    """
    bullet, playbook = MemoryRow, PlaybookRow
    columns = (bullet.key, bullet.when_to_use, bullet.content, bullet.status, bullet.created_at)
    statement = (
        select(playbook.name.label("playbook"), *columns)
        .join(
            playbook,
            (playbook.tenant_id == bullet.tenant_id) & (playbook.scope_id == bullet.scope_id),
        )
        .where(
            bullet.tenant_id == current_tenant_id(session),
            bullet.project_id == project,
            bullet.kind == MemoryKind.BULLET,
            bullet.status.in_((MemoryStatus.ACTIVE, MemoryStatus.QUARANTINED)),
        )
        .order_by(bullet.created_at.desc(), bullet.id.desc())
        .limit(limit)
    )
    return (await session.execute(statement)).all()


async def count_reflections(session: AsyncSession, project: str, since: datetime) -> int:
    """The reflections that were written since a time, also without a playbook."""
    memory = MemoryRow
    statement = select(func.count()).where(
        memory.tenant_id == current_tenant_id(session),
        memory.project_id == project,
        memory.kind == MemoryKind.REFLECTION,
        memory.status != MemoryStatus.DELETED,
        memory.created_at >= since,
    )
    return (await session.execute(statement)).scalar_one()


async def count_helpful_bullets(session: AsyncSession, project: str) -> int:
    """How many active bullets have more helpful than harmful verdicts."""
    bullet = MemoryRow
    statement = select(func.count()).where(
        bullet.tenant_id == current_tenant_id(session),
        bullet.project_id == project,
        bullet.kind == MemoryKind.BULLET,
        bullet.status == MemoryStatus.ACTIVE,
        bullet.helpful > bullet.harmful,
    )
    return (await session.execute(statement)).scalar_one()


async def count_bullets_by_verdict(session: AsyncSession, scope_id: int) -> Any:
    """`bullets` of a playbook that are not deleted; of them `helps`, `harms` and `unknown`: those
    with more helpful than harmful verdicts, the reverse, and without either.
    """
    row, count = MemoryRow, func.count()
    statement = select(
        count.label("bullets"),
        count.filter(row.helpful > row.harmful).label("helps"),
        count.filter(row.harmful > row.helpful).label("harms"),
        count.filter(row.helpful + row.harmful == 0).label("unknown"),
    ).where(
        row.tenant_id == current_tenant_id(session),
        row.scope_id == scope_id,
        row.kind == MemoryKind.BULLET,
        row.status != MemoryStatus.DELETED,
    )
    return (await session.execute(statement)).one()


async def list_harmful_bullets(
    session: AsyncSession, scope_id: int, limit: int
) -> Sequence[MemoryRow]:
    """Bullets with more harmful than helpful verdicts, the least useful first."""
    row = MemoryRow
    statement = (
        select(row)
        .where(
            row.tenant_id == current_tenant_id(session),
            row.scope_id == scope_id,
            row.kind == MemoryKind.BULLET,
            row.status != MemoryStatus.DELETED,
            row.harmful > row.helpful,
        )
        .order_by(row.usefulness, row.key)
        .limit(limit)
    )
    return (await session.scalars(statement)).all()


async def sum_verdicts(session: AsyncSession, project: str) -> dict[str, Any]:
    """Playbook → `helpful` and `harmful` verdicts of its bullets, those without any left out."""
    bullet, playbook = MemoryRow, PlaybookRow
    counts = [func.sum(c).label(c.key) for c in (bullet.helpful, bullet.harmful)]
    statement = (
        select(playbook.name, *counts)
        .join(
            bullet,
            (bullet.tenant_id == playbook.tenant_id) & (bullet.scope_id == playbook.scope_id),
        )
        .where(
            playbook.tenant_id == current_tenant_id(session),
            playbook.project_id == project,
            bullet.kind == MemoryKind.BULLET,
            bullet.status != MemoryStatus.DELETED,
            bullet.helpful + bullet.harmful > 0,
        )
        .group_by(playbook.name)
    )
    return {row.name: row for row in (await session.execute(statement)).all()}


async def sum_work(session: AsyncSession, project: str) -> Any:
    """The work of a project: `queued_count`, `running_count`, `oldest_at` of the queued runs,
    `started_at` of the longest one, and `dead_count` and `failed_count`, each of at most 1,000
    runs. What waits has no questions: one that waits for a person has a queued run for its
    deadline.
    """
    run, tenant = RunRow, current_tenant_id(session)

    def count_ended(state: str) -> Any:
        ended = select(run.id).where(
            run.tenant_id == tenant, run.project_id == project, run.state == state
        )
        some = ended.limit(MAX_COUNTED_RUNS).subquery()
        return select(func.count()).select_from(some).scalar_subquery().label(f"{state}_count")

    queued, running = run.state == "queued", run.state == "running"
    statement = select(
        func.count().filter(queued).label("queued_count"),
        func.count().filter(running).label("running_count"),
        func.min(run.created_at).filter(queued).label("oldest_at"),
        func.min(run.started_at).filter(running).label("started_at"),
        count_ended("dead"),
        count_ended("failed"),
    ).where(
        run.tenant_id == tenant,
        run.project_id == project,
        run.state.in_(("queued", "running")),
        run.kind != "agent",
    )
    return (await session.execute(statement)).one()


async def count_waiting(session: AsyncSession, project: str, name: str) -> int:
    """The waiting proposals and quarantined bullets of a playbook; 0 if there is none."""
    book, bullet, proposal = PlaybookRow, MemoryRow, ProposalRow
    quarantined = select(func.count()).where(
        bullet.tenant_id == book.tenant_id,
        bullet.scope_id == book.scope_id,
        bullet.kind == MemoryKind.BULLET,
        bullet.status == MemoryStatus.QUARANTINED,
    )
    proposed = select(func.count()).where(
        proposal.tenant_id == book.tenant_id,
        proposal.scope_id == book.scope_id,
        proposal.state == "waiting",
    )
    statement = select(quarantined.scalar_subquery() + proposed.scalar_subquery()).where(
        book.tenant_id == current_tenant_id(session),
        book.project_id == project,
        book.name == name,
    )
    return await session.scalar(statement) or 0


async def load_tasks(
    session: AsyncSession, trace_ids: Collection[UUID], run_ids: Collection[UUID]
) -> dict[UUID, Any]:
    """`task_description`, `playbook`, `outcome` and `effective_outcome` of traces, by their ID, and
    `judged_count`: the bullets on which these runs gave a verdict that counts.
    """
    trace, verdict = TraceRow, COUNTED.c
    judged = (
        select(func.count(verdict.bullet_id.distinct()))
        .where(
            verdict.tenant_id == trace.tenant_id,
            verdict.trace_id == trace.id,
            verdict.run_id.in_(run_ids),
        )
        .scalar_subquery()
        .label("judged_count")
    )
    columns = (trace.task_description, trace.playbook, trace.outcome, trace.effective_outcome)
    statement = select(trace.id, *columns, judged).where(
        trace.tenant_id == current_tenant_id(session), trace.id.in_(trace_ids)
    )
    return {row.id: row for row in (await session.execute(statement)).all()}


async def load_questions(session: AsyncSession, ids: Collection[UUID]) -> dict[UUID, AgentRunRow]:
    row = AgentRunRow
    query = select(row).where(row.tenant_id == current_tenant_id(session), row.id.in_(ids))
    return {question.id: question for question in (await session.scalars(query)).all()}


async def count_questions(session: AsyncSession, project: str) -> Any:
    """The questions of a project: `asked`, `waiting`, and those judged `right` or `wrong`."""
    row, count = AgentRunRow, func.count()
    statement = select(
        count.label("asked"),
        count.filter(row.state == "waiting").label("waiting"),
        count.filter(row.feedback == "right").label("right"),
        count.filter(row.feedback == "wrong").label("wrong"),
    ).where(row.tenant_id == current_tenant_id(session), row.project_id == project)
    return (await session.execute(statement)).one()


async def list_decisions_on(session: AsyncSession, memory_ids: Sequence[UUID]) -> Sequence[Any]:
    """The decisions on these lessons, in any playbook: `memory_id`, `decision`, `reason`, and the
    `key` and `status` of the bullet, if there is one.
    """
    if not memory_ids:
        return []
    row, bullet, tenant_id = CuratedLessonRow, MemoryRow, current_tenant_id(session)
    query = (
        select(row.memory_id, row.decision, row.reason, bullet.key, bullet.status)
        .outerjoin(bullet, and_(bullet.tenant_id == tenant_id, bullet.id == row.bullet_id))
        .where(row.tenant_id == tenant_id, row.memory_id.in_(memory_ids))
        .order_by(row.updated_at)
    )
    return (await session.execute(query)).all()
