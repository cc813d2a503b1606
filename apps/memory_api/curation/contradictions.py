"""Contradictions of bullets, as a model states them. The two bullets are linked, and the weaker one
is quarantined.

The old bullet is weaker if it is refuted: agents followed it and failed, so that the newest verdict
of a model or a person on it is harmful, or it has more harmful than helpful verdicts. One trace may
contain the verdict of a model and the contrary, so another one has to confirm them. Else the new
one waits for confirmation (`curation/confirmation.py`), and a second independent trace activates it
when the old one is refuted by then. A pinned bullet is never weaker, and a trial never refutes a
rule that is none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import fetch_column, fetch_rows, load_statement
from memory_api.curation.schemas import Lesson, ProposedChange
from memory_api.memories.queries import NewLink, add_links
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.bullet_rows import to_bullet
from memory_api.playbooks.editing.plan import ChangePlan
from memory_api.playbooks.models import TRIAL
from memory_api.playbooks.queries import find_bullets
from memory_api.playbooks.verdicts.quarantine import set_status
from memory_api.traces.duplicates import MIN_INDEPENDENT_TRACES, count_independent_traces

REFUTING_VERDICTS = load_statement("playbooks/queries.sql", "refuting_verdicts")
CONTRADICTED_BULLETS = load_statement("playbooks/queries.sql", "contradicted_bullets")


@dataclass(frozen=True)
class Contradiction:
    """A new bullet that contradicts an old one, and which of them is weaker."""

    new: str
    old: MemoryRow
    new_loses: bool

    @property
    def loser(self) -> str:
        return self.new if self.new_loses else self.old.key or ""

    @property
    def winner(self) -> str:
        return self.old.key or "" if self.new_loses else self.new


async def find_contradictions(
    session: AsyncSession,
    scope: int,
    changes: Sequence[ProposedChange],
    lessons: Sequence[Lesson],
    plan: ChangePlan,
) -> list[Contradiction]:
    """The added bullets that contradict an active one. A new bullet that is weaker than one of them
    is quarantined and causes no other quarantine.
    """
    keys = {key for change in changes for key in change.contradicts}
    rows = await find_bullets(session, scope, keys) if keys else {}
    contradictions: list[Contradiction] = []
    for result in plan.results:
        if result.action != "added" or result.key is None:
            continue
        deleted = plan.before.keys() - plan.after.bullets.keys()
        change = changes[result.index]
        keys = [key for key in change.contradicts if key not in deleted]
        old = [rows[k] for k in keys if k in rows and rows[k].status == MemoryStatus.ACTIVE]
        text = plan.after.bullets[result.key].content
        refuted = await _find_refuted(session, old, [lessons[n].trace_id for n in change.lessons])
        loses = not all(_is_weaker(row, text, refuted) for row in old)
        contradictions += [Contradiction(result.key, row, loses) for row in old]
    return contradictions


def _is_weaker(old: MemoryRow, new_text: str, refuted: Collection[UUID]) -> bool:
    """Whether an old bullet is weaker than a new text that contradicts it."""
    if old.pinned or (new_text.startswith(TRIAL) and not old.content.startswith(TRIAL)):
        return False
    return old.harmful > old.helpful or old.id in refuted


def quarantine_losers(plan: ChangePlan, contradictions: Sequence[Contradiction]) -> ChangePlan:
    for each in contradictions:
        reasons = {each.loser: f"Contradicts bullet {each.winner}."}
        if each.new_loses:
            new = {each.new: plan.after.bullets[each.new]}
            plan = set_status(plan, new, "quarantined", reasons, awaiting_confirmation=True)
        else:
            plan = set_status(plan, {each.loser: to_bullet(each.old)}, "quarantined", reasons)
    return plan


async def find_weaker_rivals(
    session: AsyncSession, scope: int, waiting: MemoryRow
) -> Mapping[str, MemoryRow] | None:
    """The active bullets that a waiting one contradicts, by key; None if one of them is not
    weaker. Independent traces taught the waiting one.
    """
    parameters = {"tenant": current_tenant_id(session), "bullet": waiting.id}
    keys = await fetch_column(session, CONTRADICTED_BULLETS, parameters)
    rivals = await find_bullets(session, scope, keys) if keys else {}
    refuted = await _find_refuted(session, rivals.values(), None)
    is_stronger = all(_is_weaker(row, waiting.content, refuted) for row in rivals.values())
    return rivals if is_stronger else None


async def _find_refuted(
    session: AsyncSession, rows: Collection[MemoryRow], taught_by: Collection[UUID | None] | None
) -> set[UUID]:
    """Those of the bullets on which the newest verdict of a person or a model is harmful. That of a
    model counts if it and the contrary come from independent traces: `taught_by` are those of the
    contrary, None if they are independent already.
    """
    if not rows:
        return set()
    parameters = {"tenant": current_tenant_id(session), "ids": [row.id for row in rows]}
    traces: dict[UUID, set[UUID]] = {}
    refuted: set[UUID] = set()
    for bullet_id, trace_id, judge in await fetch_rows(session, REFUTING_VERDICTS, parameters):
        if judge == "human" or taught_by is None:
            refuted.add(bullet_id)
        elif trace_id is not None:
            traces.setdefault(bullet_id, {id_ for id_ in taught_by or () if id_}).add(trace_id)
    for bullet_id in traces.keys() - refuted:
        count = await count_independent_traces(session, traces[bullet_id])
        if count >= MIN_INDEPENDENT_TRACES:
            refuted.add(bullet_id)
    return refuted


async def link_contradictions(
    session: AsyncSession, scope: int, contradictions: Sequence[Contradiction]
) -> None:
    keys = {contradiction.new for contradiction in contradictions}
    rows = await find_bullets(session, scope, keys) if keys else {}
    links = (
        NewLink(rows[contradiction.new].id, "contradicts", "memory", contradiction.old.id)
        for contradiction in contradictions
    )
    await add_links(session, links)
