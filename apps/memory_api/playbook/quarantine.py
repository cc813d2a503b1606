"""Bullets that harm are served no more: kept, and to be looked at by a person. One that is put back
into service stays there until somebody votes against it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.memory.schemas import Status
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.change import change_playbook
from apps.memory_api.playbook.plan import Plan
from apps.memory_api.playbook.queries import find_bullets
from apps.memory_api.playbook.rows import Author, Place, state_of, to_bullet
from apps.memory_api.playbook.schemas import Bullet, BulletStatus
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.playbook.usefulness import HARMED, base_rate, should_quarantine
from apps.memory_api.runtime import Runtime

SUSPECTS = load(__file__, "harmful.sql")
ACTOR = "curator"
"""Who takes them out of service: a rule, whoever gave the last verdict."""


def is_suspect(row: Memory) -> bool:
    """Whether a bullet has to be looked at: what `harmful.sql` finds, of one row."""
    votes = row.harmful >= HARMED and row.harmful > row.helpful and row.harmful > row.forgiven
    return votes and row.status == Status.ACTIVE and not row.pinned


async def find_harmful(session: AsyncSession, scope: int) -> dict[str, str]:
    """Key → why, of the bullets that DESIGN's rule takes out of service. The base rate of a bullet
    is that of the others of its playbook.
    """
    given = {"tenant": tenant_of(session), "scope": scope, "harmed": HARMED}
    return {
        row.key: f"judged harmful {row.harmful} times, helpful {row.helpful}"
        for row in await session.execute(SUSPECTS, given)
        if should_quarantine(
            row.helpful, row.harmful, base_rate(row.others_helpful, row.others_harmful)
        )
    }


async def quarantine(
    runtime: Runtime, tenant_id: UUID, place: Place, author: Author
) -> Sequence[str]:
    """Take what harms out of service, as one version; answers the keys. Raises `NoPlaybook`."""
    found: list[str] = []

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        reasons = await find_harmful(session, playbook.scope)
        found[:] = reasons
        rows = await find_bullets(session, playbook.scope, reasons) if reasons else {}
        nothing = Plan("quarantine", {}, state_of(playbook, {}))
        bullets = {key: to_bullet(row) for key, row in rows.items()}
        return with_status(nothing, bullets, "quarantined", reasons)

    await change_playbook(runtime, tenant_id, place, plan, author)
    return tuple(found)


def with_status(
    plan: Plan, bullets: dict[str, Bullet], status: BulletStatus, reasons: Mapping[str, str]
) -> Plan:
    """The plan with these bullets in another status; those that it does not look at yet come in."""
    if not bullets:
        return plan
    before = {**plan.before}
    after = {**plan.after.bullets}
    for key, bullet in bullets.items():
        if key not in after:
            before[key] = bullet
        after[key] = after.get(key, bullet).model_copy(update={"status": status})
    results = [
        r.model_copy(update={"after": after[r.key]}) if r.key in bullets and r.after else r
        for r in plan.results
    ]
    return replace(
        plan,
        before=before,
        after=replace(plan.after, bullets=after),
        results=results,
        reasons={**plan.reasons, **reasons},
    )
