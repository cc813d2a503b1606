"""Counting what a run says of the bullets it used, and what its task says now that it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.memory.prepare import Prepared
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.evaluate import Counted, Verdict, confirm, record
from apps.memory_api.playbook.quarantine import is_suspect
from apps.memory_api.playbook.queries import find_bullets, get_playbook, verdicts_on
from apps.memory_api.playbook.rows import Place
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.reflection.contrast import Sides, contrast
from apps.memory_api.traces.tables import Trace

KEYS = load(__file__, "task_keys.sql")
SIDES = load(__file__, "task_sides.sql")
FLIPS = load(__file__, "task_flips.sql")
LATEST = 200
"""Attempts of a task that are compared. What older ones counted for stays as it is."""


@dataclass(frozen=True)
class Tally:
    """What was counted, and the playbooks with a bullet that may have to go out of service now."""

    counted: Sequence[Counted] = ()
    suspected: Sequence[Place] = ()


async def count(
    session: AsyncSession,
    place: Place | None,
    trace: Trace,
    verdicts: Sequence[Verdict],
    ready: Mapping[str, Prepared],
) -> Tally:
    """Record the verdicts of a closed run, and let count what its outcome, seen beside the other
    attempts of its task, now confirms of any bullet; call it for a run without bullets, or without
    a playbook (`place` None), as well.

    Doing it again changes nothing. All playbooks concerned are shared first, then their bullets
    locked, scope by scope and by id. `ready` is what `playbook.evaluate.prepare_reasons` answered.
    Raises `NoBullet`.
    """
    own = await _own(session, place) if place is not None and verdicts else None
    keys: dict[int, set[str]] = {}
    names: dict[int, str] = {}
    for row in await _rows(session, trace, KEYS):
        keys[row.scope], names[row.scope] = set(row.keys), row.name
    if own is not None:
        meant = {own.aliases.get(verdict.key, verdict.key) for verdict in verdicts}
        keys.setdefault(own.scope, set()).update(meant)
        names[own.scope] = own.name
    bullets: dict[UUID, Memory] = {}
    for scope in sorted(keys):
        await get_playbook(session, Place(trace.project_id, names[scope]), share=True)
    for scope in sorted(keys):
        rows = await find_bullets(session, scope, keys[scope], lock=True)
        bullets |= {row.id: row for row in rows.values()}
    counted: list[Counted] = []
    if own is not None and place is not None:
        counted = await record(session, place, verdicts, ready)
    if trace.task_key is not None and bullets:
        await _recount(session, trace, bullets)
    scopes = sorted({row.scope for row in bullets.values() if is_suspect(row)})
    return Tally(counted, [Place(trace.project_id, names[scope]) for scope in scopes])


async def _own(session: AsyncSession, place: Place) -> PlaybookRow | None:
    """The playbook that the verdicts are about, shared; None when it was deleted."""
    playbook = await get_playbook(session, place, share=True)
    return None if playbook is None or playbook.deleted_at is not None else playbook


async def _recount(session: AsyncSession, trace: Trace, bullets: Mapping[UUID, Memory]) -> None:
    """Bring in line which outcomes of the task count for these bullets, whose locks are held."""
    sides = await _rows(session, trace, SIDES, bullets=list(bullets))
    said = {
        row.bullet_id: contrast(Sides(row.with_n, row.with_won, row.without_n, row.without_won))
        for row in sides
    }
    flips = await _rows(
        session, trace, FLIPS, bullets=list(said), tags=[tag or "" for tag in said.values()]
    )
    for flip in flips:
        rows = await verdicts_on(session, [flip.bullet_id], flip.trace_id)
        by_judge = {row.judge: row for row in rows}
        await confirm(session, bullets[flip.bullet_id], by_judge, flip.wanted)
    await session.flush()


async def _rows(session: AsyncSession, trace: Trace, statement: Any, **more: Any) -> Sequence[Any]:
    given = {
        "tenant": tenant_of(session),
        "project": trace.project_id,
        "task": trace.task_key,
        "latest": LATEST,
    }
    return (await session.execute(statement, given | more)).all()
