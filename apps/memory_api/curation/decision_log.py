"""Stores the decision on each lesson and the observations of bullets."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.queries import WITNESSED, add_observations, upsert_decisions
from memory_api.curation.schemas import Decisions, Lesson, LessonDecision, RecordedDecision
from memory_api.memories.index.drafts import fingerprint
from memory_api.memories.queries import NewLink, add_links
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.models import DeltaAction, DeltaResult
from memory_api.playbooks.queries import find_bullets

_DECISION_BY_ACTION: dict[DeltaAction, LessonDecision] = {
    "added": "added",
    "updated": "updated",
    "merged": "merged",
    "kept": "already_known",
    "deleted": "rejected",
}


async def save_decisions(
    session: AsyncSession,
    scope: int,
    lessons: Sequence[Lesson],
    rebased: Decisions,
    results: Sequence[DeltaResult],
    run_id: UUID | None,
) -> Sequence[RecordedDecision]:
    """Stores every decision, and counts each trace once as an observation of the bullet that
    matches its lesson. Without `results`, the deltas are a proposal. Returns the decisions.
    """
    decisions = list_decisions(rebased, results)
    rows = await find_bullets(
        session, scope, {decision.key for decision in decisions if decision.key}
    )
    last_decisions = {fingerprint(lessons[d.lesson].text): d for d in decisions}
    await upsert_decisions(
        session,
        [
            {
                "scope_id": scope,
                "fingerprint": lesson_fingerprint,
                "decision": decision.decision,
                "bullet_id": rows[decision.key].id if decision.key in rows else None,
                "memory_id": lessons[decision.lesson].memory_id,
                "run_id": run_id,
                "reason": decision.reason[:500] or None,
            }
            for lesson_fingerprint, decision in last_decisions.items()
        ],
    )
    for result in results:
        if result.action == "merged" and result.key:
            await _add_observations_of_merged(session, scope, result)
    for key, row in rows.items():
        decisions_on_bullet = [decision for decision in decisions if decision.key == key]
        await _count_observations(
            session,
            row,
            [lessons[decision.lesson] for decision in decisions_on_bullet],
            decisions_on_bullet,
        )
    return decisions


async def _add_observations_of_merged(
    session: AsyncSession, scope: int, result: DeltaResult
) -> None:
    """Adds the observations of the merged bullets to the survivor."""
    absorbed = [bullet.id for bullet in result.absorbed]
    rows = await find_bullets(session, scope, [result.key or "", *absorbed])
    observation_count = sum(rows[key].observation_count for key in absorbed if key in rows)
    await add_observations(session, rows[result.key or ""].id, observation_count)


def list_decisions(rebased: Decisions, results: Sequence[DeltaResult]) -> list[RecordedDecision]:
    """One decision per lesson, or one per bullet if several pieces of a lesson became bullets. A
    change of `when_to_use` alone is no decision.
    """
    decisions = _decisions_of_changes(rebased, results)
    changed = {decision.lesson for decision in decisions}
    others: dict[int, RecordedDecision] = {}
    for known in rebased.known_lessons:
        decision: LessonDecision = "waiting" if known.waits else "already_known"
        others.setdefault(
            known.lesson, RecordedDecision(known.lesson, decision, known.key, known.reason)
        )
    for rejected in rebased.rejected_lessons:
        if rejected.remember:
            for lesson in rejected.lessons:
                others[lesson] = RecordedDecision(lesson, "rejected", None, rejected.reason)
    return [*decisions, *(other for other in others.values() if other.lesson not in changed)]


def _decisions_of_changes(
    rebased: Decisions, results: Sequence[DeltaResult]
) -> list[RecordedDecision]:
    decisions: dict[tuple[int, str | None], RecordedDecision] = {}
    result_by_index = {result.index: result for result in results}
    for index, candidate in enumerate(rebased.changes):
        change = candidate.delta
        if change.type == "UPDATE" and not change.content and not candidate.by_model:
            continue
        result = result_by_index.get(index)
        if result is None:
            decided, key, reason = "proposed", None, change.reasoning
        elif result.action in _DECISION_BY_ACTION:
            decided, reason = _DECISION_BY_ACTION[result.action], result.reason
            key = None if decided == "rejected" else result.key
        else:
            continue
        for lesson in candidate.lessons:
            decisions[lesson, key] = RecordedDecision(lesson, decided, key, reason)
    return list(decisions.values())


async def _count_observations(
    session: AsyncSession,
    row: MemoryRow,
    lessons: Sequence[Lesson],
    decisions_on_bullet: Sequence[RecordedDecision],
) -> None:
    trace_ids = {lesson.trace_id for lesson in lessons if lesson.trace_id is not None}
    without_trace = [lesson for lesson in lessons if lesson.trace_id is None]
    memory_ids = {lesson.memory_id for lesson in without_trace if lesson.memory_id is not None}
    new_count = await add_links(
        session,
        [
            *(NewLink(row.id, WITNESSED, "trace", trace) for trace in sorted(trace_ids)),
            *(NewLink(row.id, WITNESSED, "memory", memory) for memory in sorted(memory_ids)),
        ],
    )
    if any(decision.decision == "added" for decision in decisions_on_bullet):
        new_count -= 1  # A new bullet starts with one observation.
    if new_count > 0:
        await add_observations(session, row.id, new_count)
