"""Quarantines harmful bullets: they are no longer retrieved until a person decides. A bullet that a
person activates again stays active until another harmful verdict is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.statements import fetch_rows, load_statement
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.bullet_rows import to_bullet, to_state
from memory_api.playbooks.editing.plan import ChangePlan
from memory_api.playbooks.editing.transaction import change_playbook
from memory_api.playbooks.models import Bullet, BulletStatus, DeltaContextItem
from memory_api.playbooks.proposals.review import add_proposal
from memory_api.playbooks.queries import find_bullets, list_proposals
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.tables import PlaybookRow
from memory_api.playbooks.usefulness import MIN_HARMFUL_VERDICTS, harm_rate, should_quarantine
from memory_api.runtime import Runtime
from memory_api.webhooks.outbox import WebhookEvent, add_event

UNPROVEN_HARMFUL_VERDICTS = load_statement("playbooks/queries.sql", "unproven_harmful_verdicts")
HARMFUL_BULLETS = load_statement("playbooks/queries.sql", "harmful_bullets")
MAX_COMPARED_PROPOSALS = 200
QUARANTINE_ACTOR = "curator"
"""The actor of a quarantine, independent of the author of the last verdict."""


def may_need_quarantine(row: MemoryRow) -> bool:
    """Whether a bullet may be harmful: the condition of `harmful_bullets` (SQL) for one row."""
    has_harmful_verdicts = (
        row.harmful >= MIN_HARMFUL_VERDICTS
        and row.harmful > row.helpful
        and row.harmful > row.harmful_at_release
    )
    return has_harmful_verdicts and row.status == MemoryStatus.ACTIVE and not row.pinned


async def find_bullets_to_quarantine(session: AsyncSession, scope: int) -> dict[str, str]:
    """The bullets to quarantine, as key → reason. The base rate of a bullet is that of the other
    bullets of its playbook.
    """
    parameters = {"scope": scope, "min_harmful": MIN_HARMFUL_VERDICTS}
    rows = await fetch_rows(session, HARMFUL_BULLETS, parameters)
    if not rows:
        return {}
    keys = {"scope": scope, "keys": [row.key for row in rows]}
    unproven = {
        row.key: row.verdict_count
        for row in await fetch_rows(session, UNPROVEN_HARMFUL_VERDICTS, keys)
    }
    return {
        row.key: quarantine_reason(row.helpful, row.harmful)
        for row in rows
        if row.harmful - unproven.get(row.key, 0) >= MIN_HARMFUL_VERDICTS
        and should_quarantine(
            row.helpful, row.harmful, harm_rate(row.others_helpful, row.others_harmful)
        )
    }


async def quarantine_harmful_bullets(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, author: ChangeAuthor
) -> Sequence[str]:
    """Quarantines harmful bullets as one version; returns their keys. If the playbook requires a
    review, adds a proposal to delete each of them instead. Raises `PlaybookNotFound`.
    """
    quarantined: list[str] = []

    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        reasons = await find_bullets_to_quarantine(session, playbook.scope_id)
        empty_plan = ChangePlan("quarantine", {}, to_state(playbook, {}))
        if playbook.review_mode == "required":
            await _propose_deletions(session, playbook, reasons, author)
            return empty_plan
        quarantined[:] = reasons
        for key, reason in reasons.items():
            data = {"playbook": playbook.name, "key": key, "reason": reason}
            add_event(session, WebhookEvent("bullet.quarantined", playbook.project_id, data))
        rows = await find_bullets(session, playbook.scope_id, reasons) if reasons else {}
        bullets = {key: to_bullet(row) for key, row in rows.items()}
        return set_status(empty_plan, bullets, "quarantined", reasons)

    await change_playbook(runtime, tenant_id, ref, plan, author)
    return tuple(quarantined)


async def _propose_deletions(
    session: AsyncSession, playbook: PlaybookRow, reasons: Mapping[str, str], author: ChangeAuthor
) -> None:
    """Adds a proposal for each bullet that no open or rejected proposal would delete."""
    if not reasons:
        return
    known = {
        delta.get("bullet_id")
        for state in ("waiting", "rejected")
        for proposal in await list_proposals(
            session, playbook.scope_id, state, None, MAX_COMPARED_PROPOSALS
        )
        for delta in proposal.deltas
        if delta.get("type") == "DELETE"
    }
    for key, reason in reasons.items():
        if key not in known:
            delta = DeltaContextItem(type="DELETE", bullet_id=key, content="", reasoning=reason)
            add_proposal(session, playbook, [delta], replace(author, reason=reason), {})


def quarantine_reason(helpful: int, harmful: int) -> str:
    return f"Harmful verdicts: {harmful}. Helpful verdicts: {helpful}."


def set_status(
    plan: ChangePlan,
    bullets: dict[str, Bullet],
    status: BulletStatus,
    reasons: Mapping[str, str],
    *,
    awaiting_confirmation: bool = False,
) -> ChangePlan:
    """The plan with another status of these bullets. Adds bullets that the plan does not
    contain.
    """
    if not bullets:
        return plan
    changes = {"status": status, "awaiting_confirmation": awaiting_confirmation}
    before = {**plan.before}
    after = {**plan.after.bullets}
    for key, bullet in bullets.items():
        if key not in after:
            before[key] = bullet
        after[key] = after.get(key, bullet).model_copy(update=changes)
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
