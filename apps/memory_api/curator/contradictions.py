"""A lesson against a bullet: the two are linked, and the weaker is not served until somebody has
looked at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.curator.schemas import Candidate, Lesson
from apps.memory_api.memory.queries import Link, link
from apps.memory_api.memory.schemas import Status
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.plan import Plan
from apps.memory_api.playbook.queries import find_bullets


@dataclass(frozen=True)
class Clash:
    """A new bullet against an old one, and which of them is weaker."""

    new: str
    old: str
    new_loses: bool

    @property
    def loser(self) -> str:
        return self.new if self.new_loses else self.old

    @property
    def winner(self) -> str:
        return self.old if self.new_loses else self.new


def clashes(
    candidates: Sequence[Candidate],
    lessons: Sequence[Lesson],
    plan: Plan,
    rows: Mapping[str, Memory],
) -> list[Clash]:
    """Of the bullets that the plan adds, those against one that is active. A new bullet that loses
    to one has lost: it beats no other.
    """
    found: list[Clash] = []
    for result in plan.results:
        if result.action != "added" or result.key is None:
            continue
        candidate = candidates[result.index]
        gone = plan.before.keys() - plan.after.bullets.keys()
        named = [rows[key] for key in candidate.contradicts if key in rows and key not in gone]
        old = [row for row in named if row.status == Status.ACTIVE]
        seen = len({lesson_id(lessons[n], n) for n in candidate.lessons})
        loses = any(new_is_weaker(row, seen, by_model=candidate.by_model) for row in old)
        found += [Clash(result.key, row.key or "", loses) for row in old]
    return found


def new_is_weaker(old: Memory, witnesses: int, *, by_model: bool) -> bool:
    """Votes first, then the number of runs; of equals the one that was there stays. What a model
    calls a contradiction takes nothing away from a bullet that no vote speaks against.
    """
    if old.pinned or old.helpful > old.harmful:
        return True
    if old.harmful > old.helpful:
        return False
    return by_model or witnesses <= old.witnesses


async def link_clashes(session: AsyncSession, scope: int, found: Sequence[Clash]) -> None:
    keys = {key for clash in found for key in (clash.new, clash.old)}
    rows = await find_bullets(session, scope, keys) if keys else {}
    said = (Link(rows[c.new].id, "contradicts", "memory", rows[c.old].id) for c in found)
    await link(session, said)


def lesson_id(lesson: Lesson, index: int) -> object:
    """What makes a lesson a witness of its own: its run, else where it is written down."""
    return lesson.trace_id or lesson.memory_id or index
