"""What became of each lesson, and who speaks for a bullet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.curator.queries import add_witnesses, remember
from apps.memory_api.curator.renew import Renewed
from apps.memory_api.curator.schemas import Decided, Lesson
from apps.memory_api.memory.prepare import fingerprint
from apps.memory_api.memory.queries import Link, link
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.queries import find_bullets
from apps.memory_api.playbook.schemas import DeltaAction, DeltaResult

WITNESSED = "witnessed_by"
_DECIDED: dict[DeltaAction, Decided] = {
    "added": "added",
    "updated": "updated",
    "merged": "merged",
    "kept": "kept",
    "deleted": "left_out",
}


@dataclass(frozen=True)
class Decision:
    """Of one lesson: the key that stands for it, if any."""

    lesson: int
    decided: Decided
    key: str | None = None
    reason: str = ""


async def remember_decisions(
    session: AsyncSession,
    scope: int,
    lessons: Sequence[Lesson],
    renewed: Renewed,
    results: Sequence[DeltaResult],
    run_id: UUID | None,
) -> None:
    """Write down every decision, and count each run once as a witness of the bullet that says its
    lesson. Without `results` the deltas wait for a person.
    """
    decisions = decisions_of(renewed, results)
    rows = await find_bullets(session, scope, {d.key for d in decisions if d.key})
    await remember(
        session,
        [
            {
                "scope": scope,
                "fingerprint": said,
                "decision": decision.decided,
                "bullet_id": rows[decision.key].id if decision.key in rows else None,
                "memory_id": lessons[decision.lesson].memory_id,
                "run_id": run_id,
                "reason": decision.reason[:500] or None,
            }
            for said, decision in _by_words(lessons, decisions).items()
        ],
    )
    for result in results:
        if result.action == "merged" and result.key:
            await _inherit(session, scope, result)
    for key, row in rows.items():
        about = [d for d in decisions if d.key == key]
        await _count(session, row, [lessons[d.lesson] for d in about], about)


async def _inherit(session: AsyncSession, scope: int, result: DeltaResult) -> None:
    """Who spoke for the bullets that were merged speaks for the survivor."""
    absorbed = [bullet.id for bullet in result.absorbed]
    rows = await find_bullets(session, scope, [result.key or "", *absorbed])
    spoke = sum(rows[key].witnesses for key in absorbed if key in rows)
    await add_witnesses(session, rows[result.key or ""].id, spoke)


def decisions_of(renewed: Renewed, results: Sequence[DeltaResult]) -> list[Decision]:
    """One per lesson; that it only made a bullet's condition more exact is none."""
    found: dict[int, Decision] = {}
    for left in renewed.dropped:
        if left.remember:
            found |= {n: Decision(n, "left_out", None, left.reason) for n in left.lessons}
    done = {result.index: result for result in results}
    for index, candidate in enumerate(renewed.candidates):
        change = candidate.delta
        if change.type == "UPDATE" and not change.content and not candidate.by_model:
            continue
        result = done.get(index)
        if result is None:
            found |= {n: Decision(n, "held", None, change.reasoning) for n in candidate.lessons}
        elif result.action in _DECIDED:
            decided = _DECIDED[result.action]
            key = None if decided == "left_out" else result.key
            found |= {n: Decision(n, decided, key, result.reason) for n in candidate.lessons}
    for keep in renewed.kept:
        found.setdefault(keep.lesson, Decision(keep.lesson, "kept", keep.key, keep.reason))
    return list(found.values())


def _by_words(lessons: Sequence[Lesson], decisions: Sequence[Decision]) -> dict[bytes, Decision]:
    return {fingerprint(lessons[d.lesson].text): d for d in decisions}


async def _count(
    session: AsyncSession, row: Memory, said: Sequence[Lesson], about: Sequence[Decision]
) -> None:
    traces = {lesson.trace_id for lesson in said if lesson.trace_id is not None}
    loose = [lesson for lesson in said if lesson.trace_id is None]
    memories = {lesson.memory_id for lesson in loose if lesson.memory_id is not None}
    new = await link(
        session,
        [
            *(Link(row.id, WITNESSED, "trace", trace) for trace in sorted(traces)),
            *(Link(row.id, WITNESSED, "memory", memory) for memory in sorted(memories)),
        ],
    )
    if any(decision.decided == "added" for decision in about):
        new -= 1  # a bullet is born with its first witness
    if new > 0:
        await add_witnesses(session, row.id, new)
