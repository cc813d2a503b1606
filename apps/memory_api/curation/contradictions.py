"""Contradictions of bullets, as a model states them. The two bullets are linked, and the weaker one
is quarantined until a person decides: the new one, unless the old one has more harmful than helpful
verdicts and is not pinned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.schemas import ProposedChange
from memory_api.memories.queries import NewLink, add_links
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.editing.plan import ChangePlan
from memory_api.playbooks.queries import find_bullets


@dataclass(frozen=True)
class Contradiction:
    """A new bullet that contradicts an old one, and which of them is weaker."""

    new: str
    old: str
    new_loses: bool

    @property
    def loser(self) -> str:
        return self.new if self.new_loses else self.old

    @property
    def winner(self) -> str:
        return self.old if self.new_loses else self.new


def contradictions_of(
    changes: Sequence[ProposedChange], plan: ChangePlan, rows: Mapping[str, MemoryRow]
) -> list[Contradiction]:
    """The added bullets that contradict an active one. A new bullet that is weaker than one of them
    is quarantined and causes no other quarantine.
    """
    contradictions: list[Contradiction] = []
    for result in plan.results:
        if result.action != "added" or result.key is None:
            continue
        deleted = plan.before.keys() - plan.after.bullets.keys()
        keys = [key for key in changes[result.index].contradicts if key not in deleted]
        old = [rows[k] for k in keys if k in rows and rows[k].status == MemoryStatus.ACTIVE]
        loses = any(row.pinned or row.harmful <= row.helpful for row in old)
        contradictions += [Contradiction(result.key, row.key or "", loses) for row in old]
    return contradictions


async def link_contradictions(
    session: AsyncSession, scope: int, contradictions: Sequence[Contradiction]
) -> None:
    keys = {
        key for contradiction in contradictions for key in (contradiction.new, contradiction.old)
    }
    rows = await find_bullets(session, scope, keys) if keys else {}
    links = (
        NewLink(rows[contradiction.new].id, "contradicts", "memory", rows[contradiction.old].id)
        for contradiction in contradictions
    )
    await add_links(session, links)
