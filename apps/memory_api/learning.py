"""The learning loop: how a trace becomes bullets in the next prompt.

    trace ─▶ evaluate ─▶ reflect ─▶ curate ─▶ apply ─▶ playbook ─▶ prompt of the next agent run
      ▲      how well    what it    what to   one new                          │
      │      did it go?  teaches    change    version                          │
      └──────────────── its trace, and verdicts on the bullets it used ◀───────┘

Each step is one run. It loads, computes without an open transaction, and saves its results, its
finished state and the next step in one transaction. So each step counts once, and a step that fails
is retried alone. There is a next step only if there is something for it to do; the worker goes on
with it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import NotFound
from memory_api.curation.step import ApplyStep, CurateStep
from memory_api.evaluation.evaluate import evaluate_trace, store_evaluation
from memory_api.evaluation.queries import count_successes, record_call_sequence
from memory_api.evaluation.reflection_policy import (
    MIN_EARLIER_SUCCESSES,
    Routine,
    call_sequence,
    decide_reflection,
    effective_outcome,
    find_conflict,
)
from memory_api.evaluation.schemas import EvaluationResults, ReflectionDecision
from memory_api.playbooks.editing.transaction import create_missing_playbook
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import PlaybookRef
from memory_api.reflection.batches.delay import batch_delay, is_short
from memory_api.reflection.credit.outcome_contrast import record_and_compare
from memory_api.reflection.credit.verdicts import (
    PreparedVerdicts,
    prepare_credit,
)
from memory_api.reflection.pipeline import LearningStep
from memory_api.reflection.step import TraceLearner
from memory_api.reflection.trajectories.step import TRAJECTORY, TrajectoryLearner
from memory_api.reflection.transcripts.step import TRANSCRIPT, TranscriptLearner
from memory_api.runs.chain import (
    APPLY,
    CURATE,
    EVALUATE,
    IMPORTANCE,
    NEXT_RUN_ID,
    OUTCOME,
    PLAYBOOK,
    REFLECT,
    REFLECT_MODE,
)
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import NextStep, StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.duplicates import mark_if_duplicate
from memory_api.traces.event_cache import EVENT_CACHE
from memory_api.traces.queries import get_trace, has_failed_attempt
from memory_api.traces.schemas import Event, OutcomeType
from memory_api.traces.tables import TraceRow

DUPLICATE_OF = "duplicate_of"
"""In the result of EVALUATE: the ID of the trace that this one duplicates."""
FAILED_EVALUATORS = "failed_evaluators"
"""In the result of EVALUATE: the evaluators whose scores are missing, with `code` and `detail`."""


@dataclass(frozen=True)
class DuplicateTrace:
    """A trace that was sent before. It is not evaluated."""

    duplicate_of: UUID


@dataclass(frozen=True)
class LoadedTrace:
    """A trace to evaluate. `missing_playbook` is the playbook that it names, if that does not exist
    yet. A trace that names a deleted playbook is evaluated and teaches nothing.
    """

    trace: TraceRow
    events: Sequence[Event]
    has_failed_before: bool
    missing_playbook: PlaybookRef | None
    has_deleted_playbook: bool = False
    call_sequence: bytes | None = None
    """See `evaluation/reflection_policy.py`."""
    earlier_successes: int = 0
    """The number of earlier successes of the playbook with the same call sequence, at most
    `MIN_EARLIER_SUCCESSES`.
    """


@dataclass(frozen=True)
class EvaluatedTrace:
    """`credit` are the verdicts on used bullets, if the trace is not reflected on. `batch_size` is
    how many runs its reflection may share a model call with, itself included.
    """

    trace: TraceRow
    evaluation: EvaluationResults
    decision: ReflectionDecision
    credit: PreparedVerdicts | None = None
    batch_size: int = 1
    batch_interval: timedelta = timedelta()
    call_sequence: bytes | None = None
    """None unless the run succeeded without a failed call."""


class EvaluateStep(Step[LoadedTrace | DuplicateTrace, EvaluatedTrace | DuplicateTrace, StepResult]):
    """Evaluates a trace and decides whether to reflect on it. If not, the bullets that it used get
    their verdicts here.
    """

    kind = EVALUATE

    async def load(self, session: AsyncSession, run: RunRow) -> LoadedTrace | DuplicateTrace:
        trace = await get_trace(session, run.trace_id) if run.trace_id else None
        if trace is None:
            raise NotFound  # erased since the run was queued
        if await mark_if_duplicate(session, trace) and trace.duplicate_of is not None:
            return DuplicateTrace(trace.duplicate_of)
        missing_playbook, has_deleted_playbook = None, False
        if trace.playbook is not None:
            playbook = PlaybookRef(trace.project_id, trace.playbook)
            row = await get_playbook(session, playbook)
            missing_playbook = playbook if row is None else None
            has_deleted_playbook = row is not None and row.deleted_at is not None
        events = await EVENT_CACHE.load(session, trace)
        calls = call_sequence(events)
        return LoadedTrace(
            trace,
            events,
            await has_failed_attempt(session, trace),
            missing_playbook,
            has_deleted_playbook,
            calls,
            await count_successes(session, trace, calls, MIN_EARLIER_SUCCESSES) if calls else 0,
        )

    async def compute(
        self, runtime: Runtime, run: RunRow, input: LoadedTrace | DuplicateTrace
    ) -> EvaluatedTrace | DuplicateTrace:
        if isinstance(input, DuplicateTrace):
            return input
        if input.missing_playbook is not None:
            await create_missing_playbook(runtime, run.tenant_id, input.missing_playbook)
        evaluation = await evaluate_trace(runtime, input.trace, input.events, run.id)
        share = runtime.settings.routine_reflection_share
        routine = Routine(input.trace.id, input.earlier_successes, share)
        decision = decide_reflection(
            evaluation,
            _reported_outcome(input.trace),
            asked=run.input.get(REFLECT_MODE, "auto"),
            mode=runtime.settings.reflective_memory_mode,
            earlier_failed=input.has_failed_before,
            routine=routine if runtime.llm is not None else None,  # the rules cost nothing
        )
        if input.has_deleted_playbook:
            reason = f"The playbook {input.trace.playbook} is deleted."
            decision = ReflectionDecision(reflect=False, importance=None, reason=reason)
        credit = None
        if not decision.reflect:
            credit = await prepare_credit(runtime, run, input.trace, input.events)
        is_success = (
            effective_outcome(evaluation, _reported_outcome(input.trace)) is OutcomeType.SUCCESS
        )
        shares_call = is_short(runtime, input.trace, input.events)
        return EvaluatedTrace(
            input.trace,
            evaluation,
            decision,
            credit,
            runtime.settings.reflection_batch_size if shares_call else 1,
            runtime.curation_interval,
            input.call_sequence if is_success else None,
        )

    async def save(
        self,
        runtime: Runtime,
        session: AsyncSession,
        run: RunRow,
        output: EvaluatedTrace | DuplicateTrace,
    ) -> StepResult:
        if isinstance(output, DuplicateTrace):
            data: dict[str, Any] = {"reflect": False, "reason": "Duplicate of an earlier trace."}
            data[DUPLICATE_OF] = str(output.duplicate_of)
            return StepResult(data=data, engine="rules")
        evaluation, decision = output.evaluation, output.decision
        conflict = find_conflict(evaluation, _reported_outcome(output.trace))
        await store_evaluation(session, output.trace.id, run.id, evaluation, conflict)
        if output.call_sequence is not None:
            await record_call_sequence(session, output.trace.id, output.call_sequence)
        if output.credit is not None:
            await record_and_compare(session, output.trace, output.credit)
        data = {
            "verdict": evaluation.verdict,
            "proven": evaluation.proven,
            "declared": evaluation.declared,
            "conflict": conflict is not None,
            "reflect": decision.reflect,
            "importance": decision.importance,
            "reason": decision.reason,
        }
        if evaluation.failures:
            data[FAILED_EVALUATORS] = [
                {"evaluator": name, "code": error.code, "detail": error.detail}
                for name, error in evaluation.failures.items()
            ]
        next_step = None
        if decision.reflect:
            reported = _reported_outcome(output.trace)
            is_known = reported or evaluation.verdict
            outcome = effective_outcome(evaluation, reported) if is_known else None
            reflect_input: dict[str, Any] = {IMPORTANCE: decision.importance, OUTCOME: outcome}
            delay = None
            if output.batch_size > 1:
                reflect_input[PLAYBOOK] = output.trace.playbook
                delay = await batch_delay(
                    session, run, output.trace, output.batch_size, output.batch_interval
                )
            next_step = NextStep(REFLECT, reflect_input, delay=delay)
            data[NEXT_RUN_ID] = str(next_step.run_id)
        return StepResult(
            data=data,
            engine="llm" if evaluation.prompt_hash else "rules",
            degraded_by=evaluation.failure,
            prompt_hash=evaluation.prompt_hash,
            usage=evaluation.usage,
            next_step=next_step,
        )

    async def after_commit(self, runtime: Runtime, run: RunRow, result: StepResult) -> None:
        if result.next_step is None:
            EVENT_CACHE.drop(run.tenant_id, run.trace_id)


def _reported_outcome(trace: TraceRow) -> OutcomeType | None:
    return OutcomeType(trace.outcome) if trace.outcome else None


RUN_STEPS: dict[str, Step[Any, Any, Any]] = {
    EVALUATE: EvaluateStep(),
    REFLECT: LearningStep(TraceLearner()),
    CURATE: CurateStep(),
    APPLY: ApplyStep(),
    TRAJECTORY: LearningStep(TrajectoryLearner()),
    TRANSCRIPT: LearningStep(TranscriptLearner()),
}
"""How each kind of run is executed. `worker.py` adds the workflow and maintenance."""
