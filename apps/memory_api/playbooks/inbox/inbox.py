"""The inbox of a playbook: lessons wait in rows until a curation decides on them.

At most one run curates a playbook (or applies what it decided), and at most one other is queued.
The row lock of `playbook_curations` orders them; it is the last lock of every transaction that
takes it. A curation takes the oldest lessons. A lesson leaves the inbox in the transaction that
decides on it, so a worker that dies, or a dead run, leaves it there for the next curation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id, transaction_time
from memory_api.core.ids import new_id
from memory_api.playbooks.inbox.queries import (
    count_lessons,
    delete_lessons,
    find_unfinished_runs,
    is_reflecting,
    list_oldest_lessons,
    list_playbooks_with_lessons,
    list_taken_lessons,
    lock_curation,
    release_lessons,
)
from memory_api.playbooks.tables import InboxLessonRow, PlaybookCurationRow, PlaybookRow
from memory_api.runs.chain import CURATE, PLAYBOOK
from memory_api.runs.lifecycle import LeaseLost, QueuedRun, RunBusy, new_run
from memory_api.runs.tables import RunRow

MAX_BATCH_LESSONS = 16
"""Lessons of one curation."""
MAX_CURATIONS_PER_LESSON = 3
"""A lesson that this many curations did not decide is rejected, also if they died."""
LOST_AFTER = timedelta(minutes=2)
"""Age of a lesson after which upkeep looks for its curation."""


class CurationBusy(RunBusy):
    """Another run curates this playbook."""


async def add_lessons(
    session: AsyncSession,
    playbook: PlaybookRow,
    lessons: Sequence[UUID],
    run: RunRow,
    *,
    interval: timedelta = timedelta(),
) -> tuple[UUID, QueuedRun | None]:
    """Put lessons of `run` into the inbox, given by the IDs of their memories. Returns the curation
    that will take them, and that curation again if it needs a ticket. Call it last in the
    transaction.

    `interval` is how long the lessons wait for those of other traces of the playbook that are being
    reflected on: a lone lesson is curated at once, and a burst shares model calls.
    """
    chain_id = run.parent_id or run.id
    ids = sorted(new_id() for _ in lessons)
    session.add_all(
        InboxLessonRow(
            tenant_id=current_tenant_id(session),
            scope_id=playbook.scope_id,
            id=lesson_id,
            memory_id=memory_id,
            trace_id=run.trace_id,
            chain_id=chain_id,
        )
        for lesson_id, memory_id in zip(ids, lessons, strict=True)
    )
    curation = await lock_curation(session, playbook.scope_id)
    starter = _Starter(chain_id, run.trace_id, run.max_attempts, run.id)
    return await _ensure_curation(
        session, playbook, curation, starter, added_count=len(lessons), interval=interval
    )


@dataclass(frozen=True)
class _Starter:
    """The chain whose lesson starts a curation, and the run that ends now, if there is one."""

    chain_id: UUID
    trace_id: UUID | None
    max_attempts: int = 5
    run_id: UUID | None = None


async def _ensure_curation(
    session: AsyncSession,
    playbook: PlaybookRow,
    curation: PlaybookCurationRow,
    starter: _Starter,
    *,
    added_count: int = 0,
    interval: timedelta = timedelta(),
) -> tuple[UUID, QueuedRun | None]:
    """The curation that takes the next lessons: the queued one, or a new one. The caller holds the
    lock of `curation`.

    While another run curates, the queued run has no ticket: the other run adds it when it ends.
    """
    known = {id_ for id_ in (curation.active_run_id, curation.queued_run_id) if id_}
    unfinished = await find_unfinished_runs(session, known)
    active_ended = curation.active_run_id is not None and curation.active_run_id not in unfinished
    if active_ended:
        curation.active_run_id = None
    run_id = curation.queued_run_id
    is_new = run_id is None or run_id not in unfinished
    if run_id is None or is_new:
        run_id = new_id()
        new_run(
            session,
            CURATE,
            project_id=playbook.project_id,
            trace_id=starter.trace_id,
            parent_id=starter.chain_id,
            input={PLAYBOOK: playbook.name},
            max_attempts=starter.max_attempts,
            run_id=run_id,
        )
        curation.queued_run_id = run_id
    await session.flush()
    if curation.active_run_id is not None:
        return run_id, None
    delay, is_due = await _start_delay(
        session, playbook, curation, starter.run_id, added_count, interval
    )
    if is_new or active_ended or is_due:
        return run_id, QueuedRun(run_id, starter.chain_id, delay)
    return run_id, None


async def _start_delay(
    session: AsyncSession,
    playbook: PlaybookRow,
    curation: PlaybookCurationRow,
    run_id: UUID | None,
    added_count: int,
    interval: timedelta,
) -> tuple[timedelta | None, bool]:
    """How long the next curation waits for more lessons, and whether the added ones end a wait: the
    batch became full, or no run but `run_id` is about to add a lesson.

    The runs that add lessons hold the lock of `curation` until they are done. So the last of a
    burst sees that it is the last.
    """
    if not interval:
        return None, False
    count = await count_lessons(session, curation.scope_id, MAX_BATCH_LESSONS + added_count)
    if count >= MAX_BATCH_LESSONS:
        return None, count - added_count < MAX_BATCH_LESSONS
    if not await is_reflecting(session, playbook, run_id):
        return None, True
    if curation.started_at is None:
        return interval, False
    remaining = curation.started_at + interval - await transaction_time(session)
    if remaining <= timedelta():
        return (interval if added_count else None), False
    return remaining, False


async def start_curation(
    session: AsyncSession, scope: int, run: RunRow
) -> Sequence[InboxLessonRow]:
    """Take the oldest lessons for this run. Raises `CurationBusy` while another run curates.

    A run that starts again takes the same lessons. After a curation that died, the batch is a
    quarter of the one before, so that a lesson that no model answers is soon alone.
    """
    curation = await lock_curation(session, scope)
    await _require_free(session, curation, run.id)
    curation.active_run_id = run.id
    curation.started_at = await transaction_time(session)
    if curation.queued_run_id == run.id:
        curation.queued_run_id = None
    taken_before = {row.id for row in await list_taken_lessons(session, scope, run.id)}
    await release_lessons(session, scope)
    rows = await list_oldest_lessons(session, scope, MAX_BATCH_LESSONS + 1)
    if rows and rows[0].id not in taken_before:
        deaths = rows[0].curation_count if rows[0].last_reason is None else 0
        rows = _first_batch(rows, max(1, MAX_BATCH_LESSONS // 4**deaths))
    elif rows:
        rows = [row for row in rows if row.id in taken_before]
    for row in rows:
        row.curation_run_id = run.id
        if row.id not in taken_before:
            row.curation_count += 1
            row.last_reason = None
    await session.flush()
    return rows


def _first_batch(rows: Sequence[InboxLessonRow], size: int) -> Sequence[InboxLessonRow]:
    """The first `size` lessons, without those of a trace that has more: they belong together. If
    all are of that trace, they are divided.
    """
    if len(rows) <= size:
        return rows
    cut = size
    while (
        cut and rows[cut - 1].trace_id is not None and rows[cut - 1].trace_id == rows[size].trace_id
    ):
        cut -= 1
    return rows[: cut or size]


async def _require_free(
    session: AsyncSession, curation: PlaybookCurationRow, *own_run_ids: UUID
) -> None:
    active = curation.active_run_id
    if active is None or active in own_run_ids:
        return
    if await find_unfinished_runs(session, [active]):
        raise CurationBusy(f"Run {active} curates this playbook.")


async def hand_over_curation(
    session: AsyncSession, scope: int, run_id: UUID, next_run_id: UUID | None
) -> None:
    """Make `next_run_id` the run that curates, in the transaction that finishes `run_id`. None if
    nothing is to be applied. Raises `LeaseLost` if another curation started meanwhile.
    """
    curation = await lock_curation(session, scope)
    if curation.active_run_id != run_id:
        raise LeaseLost
    curation.active_run_id = next_run_id
    await session.flush()


async def resume_curation(
    session: AsyncSession, scope: int, run_id: UUID, curation_run_id: UUID
) -> Sequence[InboxLessonRow]:
    """The lessons of a curation that `run_id` applies, without those that another curation took or
    decided since. Raises `CurationBusy` while another run curates.
    """
    curation = await lock_curation(session, scope)
    await _require_free(session, curation, run_id, curation_run_id)
    curation.active_run_id = run_id
    await session.flush()
    return await list_taken_lessons(session, scope, curation_run_id)


async def finish_curation(
    session: AsyncSession,
    playbook: PlaybookRow,
    run: RunRow,
    *,
    decided: Collection[UUID],
    returned: Mapping[UUID, str],
    interval: timedelta = timedelta(),
) -> tuple[UUID | None, QueuedRun | None]:
    """End a curation in the transaction that stores its decisions. `returned` lessons stay in the
    inbox with the reason. Returns the next curation if a lesson waits, and that curation again if
    it needs a ticket. Raises `LeaseLost` if another curation started meanwhile.
    """
    curation = await lock_curation(session, playbook.scope_id)
    if curation.active_run_id not in (run.id, None):
        raise LeaseLost
    await delete_lessons(session, playbook.scope_id, decided)
    rows = await list_oldest_lessons(session, playbook.scope_id, MAX_BATCH_LESSONS)
    for row in rows:
        if row.id in returned:
            row.curation_run_id, row.last_reason = None, returned[row.id][:500]
    curation.active_run_id = None
    await session.flush()
    if not rows:
        return None, None
    next_run_id, queued = await _ensure_curation(
        session,
        playbook,
        curation,
        _Starter(rows[0].chain_id, rows[0].trace_id, run.max_attempts, run.id),
        interval=interval,
    )
    if queued is None:  # the queued run has waited for this one
        delay, _ = await _start_delay(session, playbook, curation, run.id, 0, interval)
        queued = QueuedRun(next_run_id, rows[0].chain_id, delay)
    return next_run_id, queued


async def queue_missing_curations(session: AsyncSession) -> list[QueuedRun]:
    """Queue a curation of each playbook with a lesson that no queued or running curation will take:
    its curation died. Upkeep calls it.
    """
    queued: list[QueuedRun] = []
    for playbook in await list_playbooks_with_lessons(session, datetime.now(UTC) - LOST_AFTER):
        curation = await lock_curation(session, playbook.scope_id)
        rows = await list_oldest_lessons(session, playbook.scope_id, 1)
        if not rows:
            continue
        starter = _Starter(rows[0].chain_id, rows[0].trace_id)
        _, run = await _ensure_curation(session, playbook, curation, starter)
        queued += [run] if run is not None else []
    return queued
