"""A playbook over its cap gives up its least useful bullets."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.curator.queries import least_useful
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.change import change_playbook
from apps.memory_api.playbook.plan import Plan
from apps.memory_api.playbook.quarantine import with_status
from apps.memory_api.playbook.rows import Author, Place, state_of, to_bullet
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.runtime import Runtime


async def find_spare(session: AsyncSession, playbook: PlaybookRow) -> Sequence[Memory]:
    """What goes for the cap: never a pinned bullet, nor one that nobody judged."""
    over = playbook.active - playbook.max_bullets if playbook.max_bullets is not None else 0
    return await least_useful(session, playbook.scope, over) if over > 0 else []


async def retire(runtime: Runtime, tenant_id: UUID, place: Place, author: Author) -> Sequence[str]:
    """Archive what is over the cap, as one version; answers the keys. Raises `NoPlaybook`."""
    found: list[str] = []

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        rows = await find_spare(session, playbook)
        found[:] = [row.key or "" for row in rows]
        return retired(Plan("retire", {}, state_of(playbook, {})), rows)

    await change_playbook(runtime, tenant_id, place, plan, author)
    return tuple(found)


def retired(plan: Plan, rows: Sequence[Memory]) -> Plan:
    """The plan with these bullets archived."""
    bullets = {row.key or "": to_bullet(row) for row in rows}
    reasons = dict.fromkeys(bullets, "retired: the playbook is full")
    return with_status(plan, bullets, "archived", reasons)
