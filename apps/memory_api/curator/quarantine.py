"""Bullets that harm are served no more: kept, and to be looked at by a person."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.curator.merging import with_status
from apps.memory_api.curator.queries import accused, votes
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.change import Plan, change_playbook
from apps.memory_api.playbook.rows import Author, Place, state_of, to_bullet
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.playbook.usefulness import HARMED, base_rate, should_quarantine
from apps.memory_api.runtime import Runtime


async def find_harmful(session: AsyncSession, scope: int) -> list[Memory]:
    """The bullets that DESIGN's rule takes out of service; never a pinned one. The base rate of a
    bullet is that of the others of its playbook.
    """
    suspects = await accused(session, scope, HARMED)
    if not suspects:
        return []
    helpful, harmful = await votes(session, scope)
    return [
        row
        for row in suspects
        if should_quarantine(
            row.helpful,
            row.harmful,
            base_rate(helpful - row.helpful, harmful - row.harmful),
        )
    ]


async def quarantine(
    runtime: Runtime, tenant_id: UUID, place: Place, author: Author
) -> Sequence[str]:
    """Take what harms out of service, as one version; answers the keys. Raises `NoPlaybook`."""
    found: list[str] = []

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        rows = await find_harmful(session, playbook.scope)
        found[:] = [row.key or "" for row in rows]
        nothing = Plan("quarantine", {}, state_of(playbook, {}))
        made = with_status(nothing, {row.key or "": to_bullet(row) for row in rows}, "quarantined")
        reasons = {
            row.key or "": f"judged harmful {row.harmful} times, helpful {row.helpful}"
            for row in rows
        }
        return Plan(made.change, made.before, made.after, reasons=reasons)

    await change_playbook(runtime, tenant_id, place, plan, author)
    return tuple(found)
