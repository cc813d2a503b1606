"""Applies a curation plan under the playbook's lock, as one version.

Simultaneous runs end in one history: changes that others made since the plan was made are taken
into account first (`rebase_plan`). One transaction writes the bullets, their links, the
observations, the decision on each lesson, and whatever the caller adds (`on_applied`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.capacity import archive_bullets, choose_archived, drop_last_adds
from memory_api.curation.confirmation import hold_or_confirm, restrict_unconfirmed
from memory_api.curation.context import find_earlier_decisions, list_proposed_texts
from memory_api.curation.contradictions import (
    Contradiction,
    find_contradictions,
    link_contradictions,
    quarantine_losers,
)
from memory_api.curation.decision_log import save_decisions
from memory_api.curation.proven import retain_proven_texts
from memory_api.curation.rebase import CurrentPlaybook, rebase_plan
from memory_api.curation.schemas import ApplyResult, CurationPlan, Decisions, sources_of
from memory_api.memories.index.drafts import fingerprint
from memory_api.memories.schemas import MemoryStatus
from memory_api.playbooks.bullet_rows import to_bullet, to_state
from memory_api.playbooks.deltas import bullet_from_delta
from memory_api.playbooks.editing.edits import plan_deltas
from memory_api.playbooks.editing.plan import ChangeConditions, ChangePlan, ChangeResult
from memory_api.playbooks.editing.transaction import change_playbook
from memory_api.playbooks.proposals.review import add_proposal
from memory_api.playbooks.queries import find_bullets, get_playbook
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.tables import PlaybookRow
from memory_api.runtime import Runtime

OnApplied = Callable[[AsyncSession, ApplyResult], Awaitable[None]]
"""Called once with the result, in the transaction that applies the plan."""

NEW_KEY = "new"
"""Placeholder for the key of a bullet that has none yet."""


class _ReviewRequired(Exception):
    """The playbook has `review = required`."""


class _PlaybookDeleted(Exception): ...


@dataclass
class _Application:
    """One application of a plan, with the results of the last planning."""

    playbook: PlaybookRef
    plan: CurationPlan
    author: ChangeAuthor
    on_applied: OnApplied | None
    rebased: Decisions = field(default_factory=Decisions)
    contradictions: Sequence[Contradiction] = ()
    archived: Sequence[str] = ()
    result: ApplyResult | None = None

    async def finish(self, session: AsyncSession, result: ApplyResult) -> None:
        self.result = result
        if self.on_applied is not None:
            await self.on_applied(session, result)


async def apply_plan(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: PlaybookRef,
    plan: CurationPlan,
    author: ChangeAuthor,
    *,
    on_applied: OnApplied | None = None,
) -> ApplyResult:
    """Apply a plan as one version, and create the playbook if it is missing. With
    `review = required`, the deltas become a proposal instead. Raises `PlaybookContended`.
    """
    application = _Application(playbook, plan, author, on_applied)
    new = [
        bullet_from_delta(delta, NEW_KEY, delta.section)
        for delta in plan.deltas
        if delta.type == "ADD"
    ]
    planner, conditions = _planner(application), ChangeConditions(create_missing=True)
    try:
        await change_playbook(
            runtime, tenant_id, playbook, planner, author, conditions, expected=new
        )
    except _ReviewRequired:
        async with runtime.sessions.for_tenant(tenant_id) as session:
            row = await get_playbook(session, playbook, lock=True)
            assert row is not None, "it requires review, so it exists"
            await application.finish(session, await _propose(session, row, plan, author))
    except _PlaybookDeleted:
        async with runtime.sessions.for_tenant(tenant_id) as session:
            await application.finish(session, ApplyResult.of_deleted_playbook(plan))
    assert application.result is not None, "set in the transaction that wrote"
    return application.result


async def propose_plan(
    session: AsyncSession, playbook: PlaybookRef, plan: CurationPlan, author: ChangeAuthor
) -> UUID | None:
    """Store a plan as a proposal, whatever the review mode of its playbook is. Returns its ID; None
    if the playbook was deleted or nothing is left to change.
    """
    row = await get_playbook(session, playbook, lock=True)
    if row is None or row.deleted_at is not None:
        return None
    return (await _propose(session, row, plan, author)).proposal_id


def _planner(
    application: _Application,
) -> Callable[[AsyncSession, PlaybookRow], Awaitable[ChangePlan]]:
    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        if playbook.deleted_at is not None:
            raise _PlaybookDeleted
        if playbook.review_mode == "required":
            raise _ReviewRequired
        current = await load_current_playbook(session, playbook, application.plan)
        retained = retain_proven_texts(application.plan, current.state)
        if retained is not application.plan:  # it may name other bullets
            current = await load_current_playbook(session, playbook, retained)
        application.rebased = await restrict_unconfirmed(
            session, rebase_plan(retained, current), retained.lessons, current.state
        )
        change = await _plan_change(session, playbook, application)
        to_archive, excess_count = await choose_archived(session, playbook, change)
        if excess_count:
            application.rebased = drop_last_adds(application.rebased, excess_count, playbook)
            change = await _plan_change(session, playbook, application)
            to_archive, _ = await choose_archived(session, playbook, change)
        application.archived = [row.key or "" for row in to_archive]
        change = archive_bullets(change, to_archive)

        async def finish(outcome: ChangeResult) -> None:
            await _save_result(session, playbook, application, outcome)

        return replace(change, after_write=finish)

    return plan


async def load_current_playbook(
    session: AsyncSession, playbook: PlaybookRow, plan: CurationPlan
) -> CurrentPlaybook:
    """The part of the playbook that the plan depends on, in its current form."""
    aliases = playbook.aliases
    named = [(c.delta.bullet_id, *c.delta.source_ids, *c.contradicts) for c in plan.changes]
    keys = {key for keys_of_change in named for key in keys_of_change if key}
    keys |= {known.key for known in plan.known_lessons}
    keys |= {change.depends_on for change in plan.changes if change.depends_on}
    keys |= {aliases[key] for key in keys if key in aliases}
    lesson_prints = [fingerprint(lesson.text) for lesson in plan.lessons]
    texts = [c.delta.content for c in plan.changes if c.delta.content]
    prints = sorted({*map(fingerprint, texts), *lesson_prints})
    rows = await find_bullets(session, playbook.scope_id, keys, fingerprints=prints)
    existing = {key: row for key, row in rows.items() if row.status != MemoryStatus.DELETED}
    return CurrentPlaybook(
        to_state(playbook, {key: to_bullet(row) for key, row in existing.items()}),
        {row.fingerprint: key for key, row in existing.items()},
        frozenset(k for k, row in rows.items() if (row.playbook_version or 0) > plan.version),
        await find_earlier_decisions(session, playbook, plan.lessons),
    )


async def _plan_change(
    session: AsyncSession, playbook: PlaybookRow, application: _Application
) -> ChangePlan:
    """The rebased deltas, with the losers of contradictions quarantined."""
    rebased, lessons = application.rebased, application.plan.lessons
    sources = sources_of(rebased.changes, lessons)
    change = await plan_deltas(rebased.deltas, sources)(session, playbook)
    change = await hold_or_confirm(session, playbook.scope_id, rebased, lessons, change)
    application.contradictions = await find_contradictions(
        session, playbook.scope_id, rebased.changes, lessons, change
    )
    return quarantine_losers(change, application.contradictions)


async def _save_result(
    session: AsyncSession, playbook: PlaybookRow, application: _Application, outcome: ChangeResult
) -> None:
    rebased, plan = application.rebased, application.plan
    await link_contradictions(session, playbook.scope_id, application.contradictions)
    run_id = application.author.run_id
    decisions = await save_decisions(
        session, playbook.scope_id, plan.lessons, rebased, outcome.results, run_id
    )
    result = ApplyResult(
        outcome.version,
        outcome.changed,
        outcome.results,
        rebased.known_lessons,
        rebased.rejected_lessons,
        quarantined_keys=[contradiction.loser for contradiction in application.contradictions],
        archived_keys=application.archived,
        changes=rebased.changes,
        decisions=decisions,
        lessons=plan.lessons,
    )
    await application.finish(session, result)


async def _propose(
    session: AsyncSession, playbook: PlaybookRow, plan: CurationPlan, author: ChangeAuthor
) -> ApplyResult:
    """Store the deltas as a proposal. Decisions that change nothing need no review."""
    current = await load_current_playbook(session, playbook, plan)
    waiting = await list_proposed_texts(session, playbook.scope_id)
    rebased = rebase_plan(plan, replace(current, waiting=waiting))
    sources = sources_of(rebased.changes, plan.lessons)
    proposal_id: UUID | None = None
    change = await plan_deltas(rebased.deltas, sources)(session, playbook)
    if rebased.changes:
        proposal_id = add_proposal(session, playbook, rebased.deltas, author, sources).id
    await session.flush()
    decisions = await save_decisions(
        session, playbook.scope_id, plan.lessons, rebased, (), author.run_id
    )
    return ApplyResult(
        playbook.version,
        False,
        change.results,
        rebased.known_lessons,
        rebased.rejected_lessons,
        proposal_id,
        changes=rebased.changes,
        decisions=decisions,
        lessons=plan.lessons,
    )
