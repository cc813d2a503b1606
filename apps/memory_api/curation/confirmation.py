"""Bullets that repeat outside text, or contradict a bullet that is not weaker: they wait until a
second independent trace, or a person, confirms them; one with an address, until a person does.

A lesson names the passages that it repeats (`reflection/outside_text.py`). A new bullet from such a
lesson is quarantined, unless two independent traces taught it. A bullet that agents already receive
is not rewritten by one trace of this kind. A trace is independent if it is another agent run with
other events (`traces/duplicates.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.contradictions import find_weaker_rivals
from memory_api.curation.queries import WITNESSED
from memory_api.curation.schemas import Decisions, KnownLesson, Lesson, ProposedChange
from memory_api.memories.queries import list_linked_traces
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.bullet_rows import to_bullet
from memory_api.playbooks.editing.plan import ChangePlan
from memory_api.playbooks.models import Bullet, DeltaContextItem
from memory_api.playbooks.queries import find_bullets
from memory_api.playbooks.state import PlaybookState
from memory_api.playbooks.verdicts.quarantine import set_status
from memory_api.text.quotations import find_addresses, has_address, is_word, without_quotation_marks
from memory_api.traces.duplicates import MIN_INDEPENDENT_TRACES, count_independent_traces

WAITING_REASON = (
    "Quotes text of a tool or a user from one trace. A second independent trace or a person "
    "confirms it."
)
CONFIRMED_REASON = "Confirmed by a second independent trace."
NOT_REWRITTEN_REASON = "The new wording quotes text of a tool or a user from one trace."


async def restrict_unconfirmed(
    session: AsyncSession, rebased: Decisions, lessons: Sequence[Lesson], state: PlaybookState
) -> Decisions:
    """The plan without unconfirmed changes of bullets that agents receive: such a change counts
    as an observation only. A new bullet with one quarantines no other bullet.
    """
    changes: list[ProposedChange] = []
    known = list(rebased.known_lessons)
    for change in rebased.changes:
        if not await _is_unconfirmed(session, change, lessons, state):
            changes.append(change)
        elif change.delta.type == "ADD":
            changes.append(change.model_copy(update={"contradicts": []}))
        else:
            key = change.delta.bullet_id or next(iter(change.delta.source_ids), "")
            known += [
                KnownLesson(lesson=index, key=key, reason=NOT_REWRITTEN_REASON, waits=True)
                for index in change.lessons
            ]
    return replace(rebased, changes=changes, known_lessons=known)


async def hold_or_confirm(
    session: AsyncSession,
    scope: int,
    rebased: Decisions,
    lessons: Sequence[Lesson],
    plan: ChangePlan,
) -> ChangePlan:
    """The plan with unconfirmed new bullets quarantined, and with waiting bullets activated that a
    known lesson confirms, in place of those that they contradict.
    """
    held: dict[str, Bullet] = {}
    for result in plan.results:
        if result.action == "added" and result.key is not None:
            change = rebased.changes[result.index]
            if await _is_unconfirmed(session, change, lessons, plan.after):
                held[result.key] = plan.after.bullets[result.key]
    reasons = dict.fromkeys(held, WAITING_REASON)
    plan = set_status(plan, held, "quarantined", reasons, awaiting_confirmation=True)
    for row in await _find_confirmed(session, scope, rebased.known_lessons, lessons):
        rivals = await find_weaker_rivals(session, scope, row)
        if row.key in plan.after.bullets or rivals is None:
            continue
        key = row.key or ""
        plan = set_status(plan, {key: to_bullet(row)}, "active", {key: CONFIRMED_REASON})
        old = {k: to_bullet(rival) for k, rival in rivals.items() if k not in plan.after.bullets}
        plan = set_status(
            plan, old, "quarantined", dict.fromkeys(old, f"Contradicts bullet {key}.")
        )
    return plan


async def _is_unconfirmed(
    session: AsyncSession, change: ProposedChange, lessons: Sequence[Lesson], state: PlaybookState
) -> bool:
    """Whether a change passes on outside text that only one trace supports: it writes a quotation,
    or one of its lessons quotes a passage, which may be written in other words. A quotation or an
    address that none of its lessons has was copied from elsewhere in the prompt.
    """
    taught_by = [lessons[index] for index in change.lessons]
    own = _text(part for lesson in taught_by for part in (lesson.text, lesson.when_to_use))
    targets = [key for key in (change.delta.bullet_id, *change.delta.source_ids) if key]
    present = [state.bullets[key] for key in targets if key in state.bullets]
    old = _text(b for bullet in present for b in (bullet.content, bullet.title, bullet.when_to_use))
    new = _text(_texts(change.delta))
    quoted = {_fold(text) for lesson in lessons for text in lesson.unconfirmed_quotations}
    written = {text for text in quoted if text in new} | set(map(_fold, change.quotations))
    written = {text for text in written if text not in old}
    if any(text not in own or has_address(text) for text in written):
        return True
    if find_addresses(new) - find_addresses(own) - find_addresses(old):
        return True
    own_quoted = {_fold(text) for lesson in taught_by for text in lesson.unconfirmed_quotations}
    if not written & own_quoted and not any(map(_quotes_passage, taught_by)):
        return False
    traces = _present(lesson.trace_id for lesson in taught_by)
    return await count_independent_traces(session, traces) < MIN_INDEPENDENT_TRACES


def _quotes_passage(lesson: Lesson) -> bool:
    """Whether a lesson waits because of more than single words."""
    only_words = bool(lesson.quotations) and all(map(is_word, lesson.quotations))
    return lesson.awaiting_confirmation and not only_words


async def _find_confirmed(
    session: AsyncSession, scope: int, known: Sequence[KnownLesson], lessons: Sequence[Lesson]
) -> list[MemoryRow]:
    """The waiting bullets that these lessons and their earlier witnesses confirm."""
    rows = await find_bullets(session, scope, {lesson.key for lesson in known})
    confirmed: list[MemoryRow] = []
    for key, row in rows.items():
        if not row.awaiting_confirmation or has_address(row.searchable_text):
            continue
        new = {lessons[k.lesson].trace_id for k in known if k.key == key}
        traces = {*await list_linked_traces(session, row.id, WITNESSED)} | _present(new)
        if await count_independent_traces(session, traces) >= MIN_INDEPENDENT_TRACES:
            confirmed.append(row)
    return confirmed


def _present(ids: Iterable[UUID | None]) -> set[UUID]:
    return {id_ for id_ in ids if id_ is not None}


def _texts(delta: DeltaContextItem) -> list[str | None]:
    return [delta.content, delta.title, delta.when_to_use]


def _text(parts: Iterable[str | None]) -> str:
    return "\n".join(_fold(part) for part in parts if part)


def _fold(text: str) -> str:
    return " ".join(without_quotation_marks(text).casefold().split())
