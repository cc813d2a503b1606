"""Applies a curation plan under the playbook's lock, as one version.

Simultaneous runs end in one history: changes that others made since the plan was made are taken
into account first (`rebase_plan`). One transaction writes the bullets, their links, the
observations, the decision on each lesson, and whatever the caller adds (`on_applied`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.capacity import archive_bullets, choose_archived, drop_last_adds
from memory_api.curation.confirmation import hold_or_confirm, restrict_unconfirmed
from memory_api.curation.context import (
    embed_texts,
    find_earlier_decisions,
    find_nearest_bullets,
    list_proposed_texts,
    to_nearby,
)
from memory_api.curation.decision_log import save_decisions
from memory_api.curation.lesson_duplicates import (
    Contradiction,
    contradictions_of,
    link_contradictions,
)
from memory_api.curation.nearness import find_near_text
from memory_api.curation.queries import (
    find_decisions,
    load_memories,
)
from memory_api.curation.rebase import CurrentPlaybook, RebasedPlan, rebase_plan
from memory_api.curation.schemas import (
    ApplyResult,
    CurationPlan,
    sources_of,
)
from memory_api.memories.index.drafts import fingerprint
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.search.query import EmbeddedQuery
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.bullet_rows import to_bullet, to_state
from memory_api.playbooks.deltas import bullet_from_delta
from memory_api.playbooks.editing.edits import plan_deltas
from memory_api.playbooks.editing.plan import ChangeConditions, ChangePlan, ChangeResult
from memory_api.playbooks.editing.transaction import change_playbook
from memory_api.playbooks.models import Bullet
from memory_api.playbooks.proposals.review import add_proposal
from memory_api.playbooks.queries import find_bullets, get_playbook, list_changed_bullets
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.tables import PlaybookRow
from memory_api.playbooks.verdicts.quarantine import set_status
from memory_api.runtime import Runtime

OnApplied = Callable[[AsyncSession, ApplyResult], Awaitable[None]]
"""Called once with the result, in the transaction that applies the plan."""

NEW_KEY = "new"
"""Placeholder for the key of a bullet that has none yet."""
MAX_RECENT_CHANGES = 500
"""Bullets changed since the plan was made that are compared with it: the newest."""


class _ReviewRequired(Exception):
    """The playbook has `review = required`."""


class _PlaybookDeleted(Exception): ...


class _VectorsRequired(Exception):
    """The playbook changed since the plan was made, so the ADD texts must be compared with it."""


@dataclass
class _Application:
    """One application of a plan, with the results of the last planning."""

    playbook: PlaybookRef
    plan: CurationPlan
    author: ChangeAuthor
    on_applied: OnApplied | None
    queries: Mapping[str, EmbeddedQuery] | None = None
    """The contents of the ADD deltas of a model, embedded if the playbook changed."""
    rebased: RebasedPlan = field(default_factory=lambda: RebasedPlan((), (), ()))
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
    try:
        await _apply(runtime, tenant_id, application, new)
    except _VectorsRequired:
        application.queries = await _embed_additions(runtime, tenant_id, plan)
        await _apply(runtime, tenant_id, application, new)
    assert application.result is not None, "set in the transaction that wrote"
    return application.result


@dataclass(frozen=True)
class PreparedProposal:
    """A plan that becomes a proposal, whatever the review mode of its playbook is."""

    application: _Application

    def with_memories(self, ids: Mapping[UUID, UUID]) -> PreparedProposal:
        """The lessons as they were stored: the IDs of drafts → those of their memories."""
        plan = self.application.plan
        lessons = [
            lesson.model_copy(update={"memory_id": ids[lesson.memory_id]})
            if lesson.memory_id is not None and lesson.memory_id in ids
            else lesson
            for lesson in plan.lessons
        ]
        plan = plan.model_copy(update={"lessons": lessons})
        return PreparedProposal(replace(self.application, plan=plan))

    async def save(self, session: AsyncSession) -> UUID | None:
        """The ID of the proposal; None if the playbook was deleted or nothing is left to change."""
        playbook = await get_playbook(session, self.application.playbook, lock=True)
        if playbook is None or playbook.deleted_at is not None:
            return None
        await _propose(session, self.application)
        assert self.application.result is not None, "set by the proposal"
        return self.application.result.proposal_id


async def prepare_proposal(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: PlaybookRef,
    plan: CurationPlan,
    author: ChangeAuthor,
) -> PreparedProposal:
    """Embed what is needed to compare the plan with a playbook that has changed."""
    queries = await _embed_additions(runtime, tenant_id, plan)
    return PreparedProposal(_Application(playbook, plan, author, None, queries))


async def _apply(
    runtime: Runtime, tenant_id: UUID, application: _Application, new: Sequence[Bullet]
) -> None:
    ref, author = application.playbook, application.author
    planner, conditions = _planner(application), ChangeConditions(create_missing=True)
    try:
        await change_playbook(runtime, tenant_id, ref, planner, author, conditions, expected=new)
    except _ReviewRequired:
        async with runtime.sessions.for_tenant(tenant_id) as session:
            await _propose(session, application)
    except _PlaybookDeleted:
        async with runtime.sessions.for_tenant(tenant_id) as session:
            await application.finish(session, ApplyResult.of_deleted_playbook(application.plan))


def _additions_by_model(plan: CurationPlan) -> list[str]:
    """The contents that a model adds for lessons."""
    return [
        change.delta.content
        for change in plan.changes
        if change.by_model and change.lessons and change.delta.type == "ADD"
    ]


async def _embed_additions(
    runtime: Runtime, tenant_id: UUID, plan: CurationPlan
) -> dict[str, EmbeddedQuery]:
    texts = _additions_by_model(plan)
    embedder = await runtime.get_tenant_embedder(tenant_id)
    return dict(zip(texts, await embed_texts(embedder, texts), strict=True))


async def _load_current(
    session: AsyncSession, playbook: PlaybookRow, application: _Application
) -> CurrentPlaybook:
    """`load_current_playbook`, with the changed bullets that are near to an ADD of a model. Raises
    `_VectorsRequired` if the contents are not embedded yet.
    """
    plan = application.plan
    current = await load_current_playbook(session, playbook, plan)
    if not current.changed or not _additions_by_model(plan):
        return current
    if application.queries is None:
        raise _VectorsRequired
    near: dict[str, str] = {}
    for content, query in application.queries.items():
        found = await find_nearest_bullets(session, application.playbook, query)
        key = find_near_text(
            content,
            [
                (nearby.bullet.id, nearby.bullet.content, nearby.cosine or 0.0)
                for nearby in found
                if nearby.bullet.id in current.changed
            ],
        )
        near |= {content: key} if key is not None else {}
    return replace(current, near=near)


def _planner(
    application: _Application,
) -> Callable[[AsyncSession, PlaybookRow], Awaitable[ChangePlan]]:
    async def plan(session: AsyncSession, playbook: PlaybookRow) -> ChangePlan:
        if playbook.deleted_at is not None:
            raise _PlaybookDeleted
        if _requires_review(playbook):
            raise _ReviewRequired
        current = await _load_current(session, playbook, application)
        application.rebased = await restrict_unconfirmed(
            session,
            rebase_plan(application.plan, current),
            application.plan.lessons,
            current.state,
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
    keys = {key for c in plan.changes for key in _keys_in(c.delta, c.contradicts)}
    keys |= {known.key for known in plan.known_lessons}
    keys |= {change.depends_on for change in plan.changes if change.depends_on}
    keys |= {aliases[key] for key in keys if key in aliases}
    lesson_prints = [fingerprint(lesson.text) for lesson in plan.lessons]
    texts = [c.delta.content for c in plan.changes if c.delta.content]
    prints = sorted({*map(fingerprint, texts), *lesson_prints})
    rows = [*(await find_bullets(session, playbook.scope_id, keys, fingerprints=prints)).values()]
    same_text = [row for row in rows if row.fingerprint in prints]
    changed: list[MemoryRow] = []
    if playbook.version > plan.version:
        ids = await list_changed_bullets(session, playbook.scope_id, plan.version, playbook.version)
        memories = (await load_memories(session, ids)).values()
        changed = sorted(memories, key=lambda row: -(row.playbook_version or 0))[
            :MAX_RECENT_CHANGES
        ]
    existing = {r.id: r for r in (*rows, *changed) if r.status != MemoryStatus.DELETED and r.key}
    decisions = await find_decisions(session, playbook.scope_id, set(lesson_prints))
    bullets = {row.key or "": to_bullet(row) for row in existing.values()}
    return CurrentPlaybook(
        to_state(playbook, bullets),
        [
            to_nearby(row)
            for row in {r.id: r for r in (*same_text, *changed)}.values()
            if row.id in existing
        ],
        frozenset(row.key or "" for row in changed),
        await find_earlier_decisions(session, playbook, lesson_prints, decisions),
    )


async def _plan_change(
    session: AsyncSession, playbook: PlaybookRow, application: _Application
) -> ChangePlan:
    """The rebased deltas, with the losers of contradictions quarantined."""
    rebased, lessons = application.rebased, application.plan.lessons
    sources = sources_of(rebased.changes, lessons)
    change = await plan_deltas(rebased.deltas, sources)(session, playbook)
    keys = {key for candidate in rebased.changes for key in candidate.contradicts}
    rows = await find_bullets(session, playbook.scope_id, keys) if keys else {}
    change = await hold_or_confirm(session, playbook.scope_id, rebased, lessons, change)
    contradictions = contradictions_of(rebased.changes, lessons, change, rows)
    application.contradictions = contradictions
    for contradiction in contradictions:
        loser = contradiction.loser
        is_new = contradiction.new_loses
        bullet = change.after.bullets[loser] if is_new else to_bullet(rows[loser])
        reason = f"Contradicts bullet {contradiction.winner}."
        change = set_status(change, {loser: bullet}, "quarantined", {loser: reason})
    return change


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


async def _propose(session: AsyncSession, application: _Application) -> None:
    """Store the deltas as a proposal. Decisions that change nothing need no review."""
    plan, author = application.plan, application.author
    playbook = await get_playbook(session, application.playbook, lock=True)
    assert playbook is not None, "it requires review, so it exists"
    current = await _load_current(session, playbook, application)
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
    result = ApplyResult(
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
    await application.finish(session, result)


def _requires_review(playbook: PlaybookRow) -> bool:
    return playbook.review_mode == "required" and playbook.deleted_at is None


def _keys_in(delta: object, contradicts: Sequence[str]) -> list[str]:
    keys = [getattr(delta, "bullet_id", None), *getattr(delta, "source_ids", ()), *contradicts]
    return [key for key in keys if key]
