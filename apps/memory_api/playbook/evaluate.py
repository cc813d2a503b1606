"""Verdicts on bullets. Of one trace, the counters hold the verdict of the judge that knows best; of
one actor without a trace, one verdict. Votes do not raise the playbook's version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.ids import new_id
from apps.memory_api.memory.prepare import Draft, Prepared, prepare
from apps.memory_api.memory.put import put, withdraw
from apps.memory_api.memory.queries import Link, get_memory, link
from apps.memory_api.memory.schemas import Kind, Status
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.edit import no_bullet
from apps.memory_api.playbook.errors import NoPlaybook
from apps.memory_api.playbook.queries import (
    find_bullets,
    get_playbook,
    set_served_confidence,
    verdicts_on,
)
from apps.memory_api.playbook.rows import Place
from apps.memory_api.playbook.schemas import Vote
from apps.memory_api.playbook.tables import BulletEvaluation, PlaybookRow
from apps.memory_api.playbook.usefulness import usefulness
from apps.memory_api.runtime import Runtime

Judge = Literal["human", "test", "llm", "rules", "outcome"]
RANK: tuple[Judge, ...] = ("human", "test", "llm", "rules", "outcome")
"""Who wins, best first. An outcome alone is evidence: it takes part only once it is confirmed by
other attempts of the same task (`confirm`).
"""
RELATION = {"helpful": "supports", "harmful": "contradicts", "neutral": "derived_from"}


@dataclass(frozen=True)
class Verdict:
    """What one judge says of one bullet; `key` may be one that was merged."""

    key: str
    tag: Vote
    judge: Judge
    reason: str | None = None
    trace_id: UUID | None = None
    """Without a trace the actor has one verdict on the bullet: saying it again replaces it."""
    render_id: UUID | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    actor: str | None = None
    run_id: UUID | None = None

    @property
    def occasion(self) -> tuple[UUID | None, str | None]:
        """What the verdict is counted once for: its trace, else whoever gives it."""
        return self.trace_id, None if self.trace_id else self.actor


@dataclass(frozen=True)
class Counted:
    """A verdict as it stands now, the key it went to, and what the bullet's counters are."""

    evaluation: BulletEvaluation
    key: str
    new: bool
    counts: bool
    """Whether the counters hold this verdict."""
    bullet: Memory
    quarantined: bool = False
    """Whether the bullet went out of service by it."""


Known = dict[UUID, dict[str, BulletEvaluation]]
"""Verdicts of one occasion: bullet → judge → row."""


async def evaluate(
    runtime: Runtime, tenant_id: UUID, place: Place, verdicts: Sequence[Verdict]
) -> list[Counted]:
    """Record verdicts, all or none. The same verdict again changes nothing.

    Raises `NoPlaybook`, and `NoBullet` for a key that is not there.
    """
    ready = await prepare_reasons(runtime, tenant_id, place, verdicts)
    async with runtime.sessions.tenant(tenant_id) as session:
        return await record(session, place, verdicts, ready)


async def prepare_reasons(
    runtime: Runtime, tenant_id: UUID, place: Place, verdicts: Sequence[Verdict]
) -> dict[str, Prepared]:
    """The reasons of these verdicts, ready to be kept. No transaction may be open."""
    reasons = {verdict.reason: _draft(place, verdict) for verdict in verdicts if verdict.reason}
    items = await prepare(await runtime.embedder_of(tenant_id), list(reasons.values()))
    return dict(zip(reasons, items, strict=True))


async def record(
    session: AsyncSession,
    place: Place,
    verdicts: Sequence[Verdict],
    ready: Mapping[str, Prepared],
) -> list[Counted]:
    """The same inside a transaction; `ready` is what `prepare_reasons` answered."""
    playbook = await get_playbook(session, place, share=True)
    if playbook is None or playbook.deleted_at is not None:
        raise NoPlaybook
    bullets = await _bullets(session, playbook, {verdict.key for verdict in verdicts})
    known: dict[tuple[UUID | None, str | None], Known] = {}
    for occasion in {verdict.occasion for verdict in verdicts}:
        ids = {bullets[v.key].id for v in verdicts if v.occasion == occasion}
        known[occasion] = await _known(session, ids, *occasion)
    counted: list[Counted] = []
    for verdict in verdicts:
        bullet = bullets[verdict.key]
        said = known[verdict.occasion].setdefault(bullet.id, {})
        counted.append(await _record(session, place, bullet, verdict, said, ready))
    await session.flush()
    return counted


async def confirm(
    session: AsyncSession, bullet: Memory, rows: Mapping[str, BulletEvaluation], confirmed: bool
) -> None:
    """Let the outcome of one trace count for a bullet, or count no more. `rows` are that trace's
    verdicts on the bullet by judge; the caller holds the bullet's lock.
    """
    old = winner(counting(rows))
    rows["outcome"].confirmed = confirmed
    new = winner(counting(rows))
    if old != new:
        await _count(session, bullet, old, new)


def counting(rows: Mapping[str, BulletEvaluation]) -> dict[str, str]:
    """Judge → tag of the verdicts that take part in who wins."""
    return {judge: row.tag for judge, row in rows.items() if judge != "outcome" or row.confirmed}


def winner(tags: Mapping[str, str]) -> str | None:
    """Of one trace's verdicts on a bullet, judge → tag: the tag that counts, if any."""
    return next((tags[judge] for judge in RANK if judge in tags), None)


async def _known(
    session: AsyncSession, bullet_ids: Collection[UUID], trace_id: UUID | None, actor: str | None
) -> Known:
    known: Known = {}
    for row in await verdicts_on(session, bullet_ids, trace_id, actor):
        known.setdefault(row.bullet_id, {})[row.judge] = row
    return known


async def _bullets(
    session: AsyncSession, playbook: PlaybookRow, keys: Iterable[str]
) -> dict[str, Memory]:
    """The bullets that stand for these keys today, locked in the order of their ids."""
    aliases: Mapping[str, str] = playbook.aliases
    meant = {key: aliases.get(key, key) for key in keys}
    rows = await find_bullets(session, playbook.scope, set(meant.values()), lock=True)
    alive = {key: row for key, row in rows.items() if row.status != Status.DELETED}
    for key, target in meant.items():
        if target not in alive:
            raise no_bullet(playbook, key)
    return {key: alive[target] for key, target in meant.items()}


async def _record(
    session: AsyncSession,
    place: Place,
    bullet: Memory,
    verdict: Verdict,
    known: dict[str, BulletEvaluation],
    ready: Mapping[str, Prepared],
) -> Counted:
    old = winner(counting(known))
    row = known.get(verdict.judge)
    is_new = row is None
    if row is None:
        row = known[verdict.judge] = BulletEvaluation(
            tenant_id=tenant_of(session),
            id=new_id(),
            bullet_id=bullet.id,
            trace_id=verdict.trace_id,
            judge=verdict.judge,
            confirmed=False,
        )
        session.add(row)
    if is_new or (row.tag, row.reason) != (verdict.tag, verdict.reason):
        reason_changed = is_new or row.reason != verdict.reason
        row.confirmed = row.confirmed and row.tag == verdict.tag
        row.tag, row.reason, row.evidence = verdict.tag, verdict.reason, dict(verdict.evidence)
        row.render_id, row.actor, row.run_id = verdict.render_id, verdict.actor, verdict.run_id
        if reason_changed:
            await _remember(session, place, bullet, row, verdict, ready)
    says = counting(known)
    new = winner(says)
    if old != new:
        await _count(session, bullet, old, new)
    counts = next((judge for judge in RANK if judge in says), None) == verdict.judge
    return Counted(row, bullet.key or "", is_new, counts, bullet)


async def _count(session: AsyncSession, bullet: Memory, old: str | None, new: str | None) -> None:
    """Move the counters from one winning verdict to the other."""
    if old is not None:
        setattr(bullet, old, max(0, getattr(bullet, old) - 1))
    if new is not None:
        setattr(bullet, new, getattr(bullet, new) + 1)
    helpful, harmful = bullet.helpful, bullet.harmful
    bullet.usefulness = usefulness(helpful, harmful)
    total = helpful + harmful
    await session.flush()
    await set_served_confidence(session, bullet, helpful / total if total else 0.5)


async def _remember(
    session: AsyncSession,
    place: Place,
    bullet: Memory,
    row: BulletEvaluation,
    verdict: Verdict,
    ready: Mapping[str, Prepared],
) -> None:
    """Keep the reason where it can be found; the one it replaces is found no more."""
    if row.memory_id is not None:
        before = await get_memory(session, row.memory_id, for_update=True)
        if before is not None:
            await withdraw(session, [before])
            before.status = Status.DELETED
        row.memory_id = None
    if verdict.reason:
        item = ready[verdict.reason]
        draft = _draft(place, verdict, bullet.key)
        (memory,) = await put(session, [replace(item, draft=draft)])
        row.memory_id = memory.id
        links = [Link(memory.id, RELATION[verdict.tag], "memory", bullet.id)]
        if verdict.trace_id is not None:
            links.append(Link(memory.id, "derived_from", "trace", verdict.trace_id))
        await link(session, links)


def _draft(place: Place, verdict: Verdict, key: str | None = None) -> Draft:
    return Draft(
        kind=Kind.EVALUATION,
        project_id=place.project_id,
        content=verdict.reason or "",
        tags=[verdict.tag],
        source=f"judge:{verdict.judge}",
        trace_id=verdict.trace_id,
        metadata={"playbook": place.name, "key": key or verdict.key, "tag": verdict.tag},
        actor=verdict.actor,
        run_id=verdict.run_id,
    )
