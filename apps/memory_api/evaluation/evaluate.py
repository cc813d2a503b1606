"""Evaluates a trace: asks the configured evaluators in order, derives the verdict, and stores the
scores. No transaction is open while evaluators work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.evaluation import queries
from memory_api.evaluation.evaluators.registry import Evaluator, open_evaluators
from memory_api.evaluation.evaluators.threshold import Thresholds, thresholds_of
from memory_api.evaluation.schemas import (
    MAX_REASON_LENGTH,
    MAX_REASONS,
    Criterion,
    CriterionScore,
    EvaluationInput,
    EvaluationResults,
    EvaluatorResult,
    best_score,
)
from memory_api.llm.errors import LLMError, LLMRefused, LLMTruncated, LLMUnparseable, may_use_rules
from memory_api.runtime import Runtime
from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.parser import parse_trace
from memory_api.traces.schemas import ErrorInfo, Event, OutcomeConflict, OutcomeType
from memory_api.traces.tables import TraceRow
from memory_api.traces.tools import to_tools

VERDICT_CRITERIA = (Criterion.CORRECTNESS, Criterion.HELPFULNESS)
"""The criteria of the verdict; the second counts only if nothing scored the first."""
NO_OPINION = (LLMRefused, LLMTruncated, LLMUnparseable)
"""Errors of a model that answered. Asking it again for the same trace has little chance."""

MAX_SIZE_WITHOUT_THREAD = 64 * 1024
"""Characters of events that are parsed at once; those of a larger trace, in a thread."""

log = structlog.get_logger()


async def run_evaluators(
    input: EvaluationInput,
    evaluators: Sequence[tuple[str, Evaluator]],
    thresholds: Thresholds,
) -> EvaluationResults:
    """Each evaluator sees the scores of those before it. A model that refuses or gives no valid
    answer is left out, and `failures` states why. Raises any other `LLMError` of a model.
    """
    results: dict[str, EvaluatorResult] = {}
    failures: dict[str, LLMError] = {}
    for name, evaluator in evaluators:
        try:
            results[name] = await evaluator.evaluate(input)
        except LLMError as error:
            if not may_use_rules(error, allowed=isinstance(error, NO_OPINION)):
                raise
            log.warning("evaluated_without_model", evaluator=name, code=error.code)
            failures[name] = error
        else:
            input = replace(input, known=(*input.known, *results[name].scores))
    scores = (best_score(input.known, criterion) for criterion in VERDICT_CRITERIA)
    deciding = next(filter(None, scores), None)
    return EvaluationResults(
        results,
        thresholds.verdict(deciding) if deciding else None,
        deciding is not None and deciding.proven,
        deciding is not None and deciding.declared,
        failures,
    )


def evaluation_input(
    trace: TraceRow, events: Sequence[Event], run_id: UUID | None = None
) -> EvaluationInput:
    return EvaluationInput(
        run=parse_trace(events, trace.task_description, trace.task_goal, to_tools(trace.tools)),
        outcome=OutcomeType(trace.outcome) if trace.outcome else None,
        error=ErrorInfo.model_validate(trace.error) if trace.error else None,
        task_description=trace.task_description,
        task_goal=trace.task_goal,
        answer=trace.generated_answer,
        ground_truth=trace.ground_truth,
        test_report=trace.test_report,
        metadata=trace.metadata_,
        tenant_id=trace.tenant_id,
        project_id=trace.project_id,
        playbook=trace.playbook,
        run_id=run_id,
    )


async def evaluate_trace(
    runtime: Runtime,
    trace: TraceRow,
    events: Sequence[Event],
    run_id: UUID,
) -> EvaluationResults:
    """Run the configured evaluators; nothing is stored. Raises as `run_evaluators` does."""
    read = partial(evaluation_input, trace, events, run_id)
    size = sum(len(event.content) for event in events)
    input = read() if size <= MAX_SIZE_WITHOUT_THREAD else await asyncio.to_thread(read)
    evaluators = open_evaluators(runtime.settings, runtime.llm)
    thresholds = thresholds_of(runtime.settings)
    return await run_evaluators(input, evaluators, thresholds)


async def store_evaluation(
    session: AsyncSession,
    trace_id: UUID,
    run_id: UUID,
    evaluation: EvaluationResults,
    conflict: OutcomeConflict | None,
) -> None:
    """Replaces the trace's conflict, what a declared check says, and its scores of the evaluators
    that ran; the scores of others stay. Idempotent: there is one row per trace, evaluator and
    criterion.
    """
    scores = {name: _storable_scores(result) for name, result in evaluation.found.items()}
    check = evaluation.declared_outcome
    await queries.replace_scores(session, trace_id, run_id, scores, conflict, check)


def _storable_scores(result: EvaluatorResult) -> list[CriterionScore]:
    """The first score of each criterion, with limited reasons: an evaluator may be anybody's."""
    first = {score.criterion: score for score in reversed(result.scores)}
    return [
        replace(
            score,
            reasons=tuple(
                excerpt(reason, MAX_REASON_LENGTH) for reason in score.reasons[:MAX_REASONS]
            ),
        )
        for score in first.values()
    ]
