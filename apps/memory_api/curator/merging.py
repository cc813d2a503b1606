"""A curation becomes rows: plain code under the playbook's lock, so that any number of runs end in
one history. What others wrote since it was thought out is taken into account first (`renew`).

In one transaction: the bullets, the links to what they come from and against what they speak, the
witnesses, what is remembered of each lesson, and whatever the caller settles.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.curator.contradictions import Clash, clashes, link_clashes
from apps.memory_api.curator.queries import known_lessons, least_useful, memories_by_id
from apps.memory_api.curator.remember import remember_decisions
from apps.memory_api.curator.renew import Renewed, Today, renew
from apps.memory_api.curator.retire import retired
from apps.memory_api.curator.schemas import Curation, LeftOut, Merged, sources_of
from apps.memory_api.curator.view import decided, near_of, waiting_texts
from apps.memory_api.memory.prepare import fingerprint
from apps.memory_api.memory.schemas import Status
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.change import change_playbook
from apps.memory_api.playbook.deltas import bullet_of
from apps.memory_api.playbook.edit import deltas_planner
from apps.memory_api.playbook.plan import Outcome, Plan, Terms
from apps.memory_api.playbook.quarantine import with_status
from apps.memory_api.playbook.queries import (
    changed_between,
    find_bullets,
    get_playbook,
)
from apps.memory_api.playbook.review import hold
from apps.memory_api.playbook.rows import Author, Place, is_served, state_of, to_bullet
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.runtime import Runtime

Settle = Callable[[AsyncSession, Merged], Awaitable[None]]
"""Called once with what was done, in the transaction that does it."""

NEW = "new"
"""Stands for the key of a bullet that has none yet."""
FRESH = 500
"""Bullets changed since the curation that are looked at: the newest."""


class _AsksForReview(Exception):
    """The playbook wants a person to decide."""


@dataclass
class _Job:
    """One merge, and what its last plan came to."""

    place: Place
    curation: Curation
    author: Author
    settle: Settle | None
    renewed: Renewed = field(default_factory=lambda: Renewed((), (), ()))
    clashes: Sequence[Clash] = ()
    retired: Sequence[str] = ()
    merged: Merged | None = None


async def merge(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    curation: Curation,
    author: Author,
    *,
    settle: Settle | None = None,
) -> Merged:
    """Make the playbook what the curation wants, as one version; the playbook is made when there is
    none. Where it has `review = required`, the deltas wait for a person instead.

    Raises `TooBusy`.
    """
    job = _Job(place, curation, author, settle)
    new = [bullet_of(delta, NEW, delta.section) for delta in curation.deltas if delta.type == "ADD"]
    try:
        await change_playbook(
            *(runtime, tenant_id, place, _planner(job), author, Terms(create=True)), expected=new
        )
    except _AsksForReview:
        async with runtime.sessions.tenant(tenant_id) as session:
            await _hold(session, job)
    assert job.merged is not None, "settled in the transaction that wrote"
    return job.merged


def _planner(job: _Job) -> Callable[[AsyncSession, PlaybookRow], Awaitable[Plan]]:
    async def plan(session: AsyncSession, playbook: PlaybookRow) -> Plan:
        if _is_reviewed(playbook):
            raise _AsksForReview
        today = await read_today(session, playbook, job.curation)
        job.renewed = renew(job.curation, today)
        made = await _plan(session, playbook, job)
        retiring, missing = await _room(session, playbook, made)
        if missing:
            job.renewed = _without_adds(job.renewed, missing, playbook)
            made = await _plan(session, playbook, job)
            retiring, _ = await _room(session, playbook, made)
        job.retired = [row.key or "" for row in retiring]
        made = retired(made, retiring)

        async def settle(outcome: Outcome) -> None:
            await _settle(session, playbook, job, outcome)

        return replace(made, settle=settle)

    return plan


async def read_today(session: AsyncSession, playbook: PlaybookRow, curation: Curation) -> Today:
    """What of the playbook the curation depends on, as it is now."""
    aliases = playbook.aliases
    named = {key for c in curation.candidates for key in _named(c.delta, c.contradicts)}
    named |= {keep.key for keep in curation.kept}
    named |= {aliases[key] for key in named if key in aliases}
    prints = [fingerprint(lesson.text) for lesson in curation.lessons]
    texts = [c.delta.content for c in curation.candidates if c.delta.content]
    said = sorted({*map(fingerprint, texts), *prints})
    rows = [*(await find_bullets(session, playbook.scope, named, said=said)).values()]
    twins = [row for row in rows if row.fingerprint in said]
    changed: list[Memory] = []
    if playbook.version > curation.version:
        ids = await changed_between(session, playbook.scope, curation.version, playbook.version)
        found = (await memories_by_id(session, ids)).values()
        changed = sorted(found, key=lambda row: -(row.version or 0))[:FRESH]
    alive = {r.id: r for r in (*rows, *changed) if r.status != Status.DELETED and r.key}
    known = await known_lessons(session, playbook.scope, set(prints))
    bullets = {row.key or "": to_bullet(row) for row in alive.values()}
    return Today(
        state_of(playbook, bullets),
        [near_of(row) for row in {r.id: r for r in (*twins, *changed)}.values() if row.id in alive],
        frozenset(row.key or "" for row in changed),
        await decided(session, playbook, prints, known),
        await waiting_texts(session, playbook.scope) if _is_reviewed(playbook) else (),
    )


async def _plan(session: AsyncSession, playbook: PlaybookRow, job: _Job) -> Plan:
    renewed = job.renewed
    sources = sources_of(renewed.candidates, job.curation.lessons)
    made = await deltas_planner(renewed.deltas, sources)(session, playbook)
    rivals = {key for candidate in renewed.candidates for key in candidate.contradicts}
    rows = await find_bullets(session, playbook.scope, rivals) if rivals else {}
    job.clashes = clashes(renewed.candidates, job.curation.lessons, made, rows)
    for clash in job.clashes:
        bullets = (
            {clash.loser: made.after.bullets[clash.loser]}
            if clash.new_loses
            else {clash.loser: to_bullet(rows[clash.loser])}
        )
        why = {clash.loser: f"it contradicts {clash.winner}"}
        made = with_status(made, bullets, "quarantined", why)
    return made


def _growth(plan: Plan) -> int:
    now = sum(is_served(bullet) for bullet in plan.after.bullets.values())
    return now - sum(is_served(bullet) for bullet in plan.before.values())


async def _room(
    session: AsyncSession, playbook: PlaybookRow, plan: Plan
) -> tuple[Sequence[Memory], int]:
    """The bullets that must go for this plan, and how many more would have to but may not."""
    grown = _growth(plan)
    over = playbook.active + grown - playbook.max_bullets if playbook.max_bullets is not None else 0
    if grown <= 0 or over <= 0:
        return [], 0
    taken = {key for key, bullet in plan.after.bullets.items() if plan.before.get(key) != bullet}
    rows = await least_useful(session, playbook.scope, over + len(taken))
    free = [row for row in rows if row.key not in taken][:over]
    return free, over - len(free)


def _without_adds(renewed: Renewed, count: int, playbook: PlaybookRow) -> Renewed:
    """Without so many of what is new, the last of it, as nothing may go for it."""
    adds = [n for n, c in enumerate(renewed.candidates) if c.delta.type == "ADD"][-count:]
    reason = f"the playbook may have {playbook.max_bullets} bullets"
    left = [LeftOut(reason=reason, lessons=renewed.candidates[n].lessons) for n in adds]
    kept = [c for n, c in enumerate(renewed.candidates) if n not in adds]
    return replace(renewed, candidates=kept, dropped=[*renewed.dropped, *left])


async def _settle(
    session: AsyncSession, playbook: PlaybookRow, job: _Job, outcome: Outcome
) -> None:
    renewed, curation = job.renewed, job.curation
    merged = Merged(
        outcome.version,
        outcome.changed,
        outcome.results,
        renewed.kept,
        renewed.dropped,
        quarantined=[clash.loser for clash in job.clashes],
        retired=job.retired,
    )
    await link_clashes(session, playbook.scope, job.clashes)
    await remember_decisions(
        session, playbook.scope, curation.lessons, renewed, outcome.results, job.author.run_id
    )
    await _finish(session, job, merged)


async def _hold(session: AsyncSession, job: _Job) -> None:
    """Keep the deltas for a person; what is only kept or left out needs nobody."""
    playbook = await get_playbook(session, job.place, lock=True)
    assert playbook is not None, "it asked for review"
    renewed = renew(job.curation, await read_today(session, playbook, job.curation))
    sources = sources_of(renewed.candidates, job.curation.lessons)
    proposal_id: UUID | None = None
    plan = await deltas_planner(renewed.deltas, sources)(session, playbook)
    if renewed.candidates:
        proposal_id = hold(session, playbook, renewed.deltas, job.author, sources).id
    await session.flush()
    await remember_decisions(
        session, playbook.scope, job.curation.lessons, renewed, (), job.author.run_id
    )
    held = Merged(playbook.version, False, plan.results, renewed.kept, renewed.dropped, proposal_id)
    await _finish(session, job, held)


async def _finish(session: AsyncSession, job: _Job, merged: Merged) -> None:
    job.merged = merged
    if job.settle is not None:
        await job.settle(session, merged)


def _is_reviewed(playbook: PlaybookRow) -> bool:
    return playbook.review == "required" and playbook.deleted_at is None


def _named(change: object, contradicts: Sequence[str]) -> list[str]:
    keys = [getattr(change, "bullet_id", None), *getattr(change, "source_ids", ()), *contradicts]
    return [key for key in keys if key]
