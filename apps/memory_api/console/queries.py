"""Statements of the console: its sessions, and the bullets of its first page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, Text, case, cast, delete, func, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.auth.queries import tenant_is_active
from memory_api.auth.tables import ApiKeyRow
from memory_api.console.tables import ConsoleSessionRow
from memory_api.core.db import current_tenant_id
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.tables import BulletVerdictRow, PlaybookRow
from memory_api.playbooks.verdicts.record import JUDGE_PRECEDENCE


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


async def list_harmful_bullets(
    session: AsyncSession, project: str, since: datetime, before: datetime, limit: int
) -> Sequence[Any]:
    """Bullets with more harmful than helpful verdicts since a time, the most harmful first: of
    `playbook`, `key`, `content`, `harmful_count`, `helpful_count`, and the same counts of the time
    from `before` to `since` as `earlier_harmful_count` and `earlier_helpful_count`. As in the
    counters of a bullet, one verdict of each trace counts, and that of an outcome only if it is
    confirmed.
    """
    tenant, verdict = current_tenant_id(session), BulletVerdictRow
    precedence = case({judge: n for n, judge in enumerate(JUDGE_PRECEDENCE)}, value=verdict.judge)
    source = func.coalesce(cast(verdict.trace_id, Text), verdict.actor)
    ranked = (
        select(
            verdict.bullet_id,
            verdict.tag,
            (verdict.created_at >= since).label("is_new"),
            func.row_number()
            .over(partition_by=(verdict.bullet_id, source), order_by=precedence)
            .label("rank"),
        )
        .where(
            verdict.tenant_id == tenant,
            verdict.created_at >= before,
            or_(verdict.judge != "outcome", verdict.confirmed),
        )
        .subquery()
    )

    def count(tag: str, is_new: bool) -> Any:
        return func.count().filter(ranked.c.tag == tag, ranked.c.is_new == is_new)

    harmful, helpful = count("harmful", True), count("helpful", True)
    counted = (
        select(
            ranked.c.bullet_id,
            harmful.label("harmful_count"),
            helpful.label("helpful_count"),
            count("harmful", False).label("earlier_harmful_count"),
            count("helpful", False).label("earlier_helpful_count"),
        )
        .where(ranked.c.rank == 1)
        .group_by(ranked.c.bullet_id)
        .having(harmful > helpful)
        .subquery()
    )
    bullet = MemoryRow
    statement = (
        _select_bullets(
            session,
            project,
            counted.c.harmful_count,
            counted.c.helpful_count,
            counted.c.earlier_harmful_count,
            counted.c.earlier_helpful_count,
        )
        .join(counted, bullet.id == counted.c.bullet_id)
        .order_by(counted.c.helpful_count - counted.c.harmful_count, bullet.key)
        .limit(limit)
    )
    return (await session.execute(statement)).all()


async def list_newest_bullets(session: AsyncSession, project: str, limit: int) -> Sequence[Any]:
    """The bullets that were added last: of `playbook`, `key`, `content`, `status`."""
    bullet = MemoryRow
    statement = _select_bullets(session, project, bullet.status)
    statement = statement.order_by(bullet.created_at.desc(), bullet.id.desc()).limit(limit)
    return (await session.execute(statement)).all()


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


def _select_bullets(session: AsyncSession, project: str, *columns: Any) -> Select[Any]:
    """The bullets of a project that are not removed, with the names of their playbooks."""
    bullet, playbook = MemoryRow, PlaybookRow
    return (
        select(playbook.name.label("playbook"), bullet.key, bullet.content, *columns)
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
    )
