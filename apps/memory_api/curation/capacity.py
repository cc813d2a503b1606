"""The limit of bullets of a playbook (`max_bullets`): what is archived, and what is not added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.queries import list_least_useful_bullets
from memory_api.curation.schemas import Decisions, RejectedLesson
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.bullet_rows import is_active, to_bullet, to_state
from memory_api.playbooks.editing.plan import ChangePlan
from memory_api.playbooks.editing.transaction import change_playbook
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.tables import PlaybookRow
from memory_api.playbooks.verdicts.quarantine import set_status
from memory_api.runtime import Runtime


async def find_bullets_over_capacity(
    session: AsyncSession, playbook: PlaybookRow
) -> Sequence[MemoryRow]:
    """The least useful bullets above `max_bullets`; never pinned or unrated ones."""
    excess = playbook.active_count - playbook.max_bullets if playbook.max_bullets is not None else 0
    return await list_least_useful_bullets(session, playbook.scope_id, excess) if excess > 0 else []


async def archive_over_capacity(
    runtime: Runtime, tenant_id: UUID, playbook: PlaybookRef, author: ChangeAuthor
) -> Sequence[str]:
    """Archive the bullets above `max_bullets`, as one version; their keys. Raises
    `PlaybookNotFound`.
    """
    archived: list[str] = []

    async def plan(session: AsyncSession, row: PlaybookRow) -> ChangePlan:
        rows = await find_bullets_over_capacity(session, row)
        archived[:] = [bullet.key or "" for bullet in rows]
        return archive_bullets(ChangePlan("retire", {}, to_state(row, {})), rows)

    await change_playbook(runtime, tenant_id, playbook, plan, author)
    return tuple(archived)


def archive_bullets(plan: ChangePlan, rows: Sequence[MemoryRow]) -> ChangePlan:
    bullets = {row.key or "": to_bullet(row) for row in rows}
    reasons = dict.fromkeys(bullets, "Archived: the playbook exceeds its bullet limit.")
    return set_status(plan, bullets, "archived", reasons)


async def choose_archived(
    session: AsyncSession, playbook: PlaybookRow, change: ChangePlan
) -> tuple[Sequence[MemoryRow], int]:
    """The bullets that this change pushes over `max_bullets`, and how many more there would have to
    be although no other bullet may be archived.
    """
    growth = _growth(change)
    if playbook.max_bullets is None or growth <= 0:
        return [], 0
    excess = playbook.active_count + growth - playbook.max_bullets
    if excess <= 0:
        return [], 0
    after, before = change.after.bullets, change.before
    changed = {key for key, bullet in after.items() if before.get(key) != bullet}
    rows = await list_least_useful_bullets(session, playbook.scope_id, excess + len(changed))
    archivable = [row for row in rows if row.key not in changed][:excess]
    return archivable, excess - len(archivable)


def _growth(change: ChangePlan) -> int:
    """By how many active bullets the playbook grows."""
    after = sum(is_active(bullet) for bullet in change.after.bullets.values())
    return after - sum(is_active(bullet) for bullet in change.before.values())


def drop_last_adds(rebased: Decisions, count: int, playbook: PlaybookRow) -> Decisions:
    """Without the last `count` ADD deltas, for which there is no room."""
    adds = [n for n, c in enumerate(rebased.changes) if c.delta.type == "ADD"][-count:]
    reason = f"The playbook has reached its limit of {playbook.max_bullets} bullets."
    rejected = [RejectedLesson(reason=reason, lessons=rebased.changes[n].lessons) for n in adds]
    candidates = [c for n, c in enumerate(rebased.changes) if n not in adds]
    return replace(
        rebased, changes=candidates, rejected_lessons=[*rebased.rejected_lessons, *rejected]
    )
