"""The steps CURATE and APPLY: what lessons should change in a playbook, and the change itself.

CURATE takes the oldest lessons of the playbook's inbox. APPLY writes the plan, removes the decided
lessons from the inbox, and queues the next curation if any lesson is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.apply import apply_plan
from memory_api.curation.cleanup import enqueue_cleanup_after_growth
from memory_api.curation.curate import curate
from memory_api.curation.queries import load_memories
from memory_api.curation.schemas import (
    ApplyResult,
    CurationPlan,
    Lesson,
    RejectedLesson,
    is_newer_than_deletion,
    lesson_from_inbox,
)
from memory_api.playbooks.inbox.inbox import (
    MAX_CURATIONS_PER_LESSON,
    finish_curation,
    hand_over_curation,
    resume_curation,
    start_curation,
)
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.tables import InboxLessonRow
from memory_api.playbooks.verdicts.quarantine import QUARANTINE_ACTOR
from memory_api.runs.chain import (
    APPLY,
    CURATE,
    CURATION_PLAN,
    CURATION_RUN_ID,
    LESSON_IDS,
    NEXT_RUN_ID,
    PLAYBOOK,
)
from memory_api.runs.execution import SaveInTransaction, Step
from memory_api.runs.lifecycle import NextStep, StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

EXHAUSTED_REASON = f"{MAX_CURATIONS_PER_LESSON} curations of this lesson failed."
NOT_WAITING_REASON = "Another curation decided on this lesson, or the playbook was deleted."


@dataclass(frozen=True)
class LessonBatch:
    """The lessons that a curation took from the inbox. `ids` are parallel to `lessons`; `obsolete`
    are the IDs of rows whose lesson was deleted. `final` are the indexes of the lessons that no
    further curation takes; the last `exhausted_count` lessons are not even asked about, because
    each curation that took them died.
    """

    scope_id: int
    lessons: Sequence[Lesson]
    ids: Sequence[UUID]
    obsolete: Sequence[UUID] = ()
    final: Sequence[int] = ()
    exhausted_count: int = 0


@dataclass(frozen=True)
class CuratedBatch:
    """The plan for a batch."""

    batch: LessonBatch
    plan: CurationPlan


class CurateStep(Step[LessonBatch, CuratedBatch, StepResult]):
    """Turns the oldest lessons of a playbook's inbox into a curation plan, and queues its
    application. `load` raises `CurationBusy` while another run curates the playbook.
    """

    kind = CURATE

    async def load(self, session: AsyncSession, run: RunRow) -> LessonBatch:
        playbook = await get_playbook(session, _playbook_of(run))
        assert playbook is not None, "its inbox had lessons"
        rows = await start_curation(session, playbook.scope_id, run)
        memories = await load_memories(session, [row.memory_id for row in rows])
        found = {
            row: lesson
            for row in rows
            if is_newer_than_deletion(row, playbook)
            and (lesson := lesson_from_inbox(row, memories.get(row.memory_id)))
        }
        ordered = sorted(found, key=_is_exhausted)  # stable: exhausted ones last
        return LessonBatch(
            playbook.scope_id,
            [found[row] for row in ordered],
            [row.id for row in ordered],
            [row.id for row in rows if row not in found],
            [n for n, r in enumerate(ordered) if r.curation_count >= MAX_CURATIONS_PER_LESSON],
            sum(map(_is_exhausted, ordered)),
        )

    async def compute(self, runtime: Runtime, run: RunRow, input: LessonBatch) -> CuratedBatch:
        playbook = _playbook_of(run)
        plan = CurationPlan()
        count = len(input.lessons) - input.exhausted_count
        if count:
            lessons = input.lessons[:count]
            plan = await curate(runtime, run.tenant_id, playbook, lessons, run_id=run.id)
        if input.exhausted_count:
            exhausted = list(range(count, len(input.lessons)))
            plan.lessons += input.lessons[count:]
            plan.rejected_lessons.append(
                RejectedLesson(reason=EXHAUSTED_REASON, lessons=exhausted, remember=True)
            )
        plan.final_lessons = list(input.final)
        return CuratedBatch(input, plan)

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: CuratedBatch
    ) -> StepResult:
        batch, plan = output.batch, output.plan
        next_step = NextStep(
            APPLY,
            {
                PLAYBOOK: run.input[PLAYBOOK],
                CURATION_PLAN: plan.model_dump(mode="json"),
                LESSON_IDS: [str(lesson_id) for lesson_id in (*batch.ids, *batch.obsolete)],
                CURATION_RUN_ID: str(run.id),
            },
        )
        has_lessons = bool(batch.ids or batch.obsolete)
        next_run_id = next_step.run_id if has_lessons else None
        await hand_over_curation(session, batch.scope_id, run.id, next_run_id)
        return StepResult(
            data={
                "lessons": [
                    lesson.model_dump(mode="json", include={"memory_id", "trace_id"})
                    for lesson in batch.lessons
                ],
                "deltas": [delta.model_dump(mode="json") for delta in plan.deltas],
                "known_keys": [known.key for known in plan.known_lessons],
                "rejected_reasons": [rejected.reason for rejected in plan.rejected_lessons],
                NEXT_RUN_ID: str(next_run_id) if next_run_id else None,
            },
            engine=plan.engine,
            degraded_by=plan.failure,
            prompt_hash=plan.prompt_hash,
            usage=plan.usage,
            next_step=next_step if has_lessons else None,
        )


@dataclass
class PlanToApply:
    """A curation plan for the lessons that still wait. `lesson_ids` are the inbox IDs of all its
    lessons; `applied` is the result, once the plan is applied.
    """

    plan: CurationPlan
    lesson_ids: Sequence[UUID]
    applied: ApplyResult | None = None


class ApplyStep(Step[PlanToApply, PlanToApply, StepResult]):
    """Applies the curation plan of a run, and queues the next curation of the playbook if any
    lesson is left.
    """

    kind = APPLY

    async def load(self, session: AsyncSession, run: RunRow) -> PlanToApply:
        playbook = await get_playbook(session, _playbook_of(run))
        assert playbook is not None, "its inbox had lessons"
        plan = CurationPlan.model_validate(run.input[CURATION_PLAN])
        lesson_ids = [UUID(lesson_id) for lesson_id in run.input[LESSON_IDS]]
        curation_run_id = UUID(run.input[CURATION_RUN_ID])
        rows = await resume_curation(session, playbook.scope_id, run.id, curation_run_id)
        waiting = {row.id for row in rows if is_newer_than_deletion(row, playbook)}
        indexes = [n for n, id_ in enumerate(lesson_ids[: len(plan.lessons)]) if id_ in waiting]
        return PlanToApply(restrict_plan(plan, indexes), lesson_ids)

    async def compute(self, runtime: Runtime, run: RunRow, input: PlanToApply) -> PlanToApply:
        return input  # the changes are computed under the lock of the playbook

    async def store(
        self, runtime: Runtime, run: RunRow, output: PlanToApply, save: SaveInTransaction
    ) -> None:
        """Apply the plan in the transaction that locks the playbook."""

        async def on_applied(session: AsyncSession, applied: ApplyResult) -> None:
            output.applied = applied
            await save(session)

        plan = output.plan
        author = ChangeAuthor(QUARANTINE_ACTOR, _learning_reason(plan), run.id)
        ref = _playbook_of(run)
        await apply_plan(runtime, run.tenant_id, ref, plan, author, on_applied=on_applied)

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: PlanToApply
    ) -> StepResult:
        applied, lesson_ids = output.applied, output.lesson_ids
        playbook = await get_playbook(session, _playbook_of(run))
        assert playbook is not None, "playbooks are never removed"
        assert applied is not None, "set when the plan is applied"
        returned = applied.returned_lessons()
        next_run_id, queued = await finish_curation(
            session,
            playbook,
            run,
            decided=[id_ for n, id_ in enumerate(lesson_ids) if n not in returned],
            returned={lesson_ids[n]: reason for n, reason in returned.items()},
            interval=runtime.curation_interval if runtime.llm is not None else timedelta(),
        )
        data = {PLAYBOOK: playbook.name, **applied.to_json()}
        data["changes"] = applied.bullet_changes()
        data["lessons"] = applied.lesson_results()
        if returned and next_run_id is not None:
            data[NEXT_RUN_ID] = str(next_run_id)
        if next_run_id is None:  # else the playbook changes soon: the next one consolidates it
            await enqueue_cleanup_after_growth(runtime, session, playbook)
        return StepResult(data=data, queued_run=queued)


def _playbook_of(run: RunRow) -> PlaybookRef:
    return PlaybookRef(run.project_id, run.input[PLAYBOOK])


def _is_exhausted(row: InboxLessonRow) -> bool:
    """Whether every curation that took the lesson died, this one not counted."""
    return row.curation_count > MAX_CURATIONS_PER_LESSON


def _learning_reason(plan: CurationPlan) -> str:
    trace_ids = list(dict.fromkeys(lesson.trace_id for lesson in plan.lessons if lesson.trace_id))
    if len(trace_ids) == 1:
        return f"Learned from trace {trace_ids[0]}."
    return f"From the lessons of {len(trace_ids)} traces."


def restrict_plan(plan: CurationPlan, waiting: Sequence[int]) -> CurationPlan:
    """The plan for the lessons that still wait. Another curation has decided on the others, or the
    playbook was deleted.
    """
    indexes = set(waiting)
    if len(indexes) == len(plan.lessons):
        return plan
    others = [n for n in range(len(plan.lessons)) if n not in indexes]

    def keep(lessons: Sequence[int]) -> list[int]:
        return [n for n in lessons if n in indexes]

    changes = [c.model_copy(update={"lessons": keep(c.lessons)}) for c in plan.changes]
    rejected = [r.model_copy(update={"lessons": keep(r.lessons)}) for r in plan.rejected_lessons]
    rejected.append(RejectedLesson(reason=NOT_WAITING_REASON, lessons=others))
    return plan.model_copy(
        update={
            "changes": [change for change in changes if change.lessons],
            "known_lessons": [known for known in plan.known_lessons if known.lesson in indexes],
            "rejected_lessons": rejected,
        }
    )
