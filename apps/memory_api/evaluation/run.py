"""Evaluates a stored trace: look, store. No transaction is open while evaluators look."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.evaluation import queries
from apps.memory_api.evaluation.case import case_of
from apps.memory_api.evaluation.evaluate import evaluate
from apps.memory_api.evaluation.registry import open_evaluators
from apps.memory_api.evaluation.schemas import Found, Score, TraceEvaluation
from apps.memory_api.evaluation.threshold import thresholds_of
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.quotes import cut
from apps.memory_api.traces.tables import Trace, TraceEvent

REASONS, REASON = 10, 400
"""Reasons of a score that are kept, and their length."""


async def evaluate_trace(
    runtime: Runtime,
    trace: Trace,
    events: Sequence[TraceEvent],
    run_id: UUID,
    *,
    or_rules: bool = False,
) -> TraceEvaluation:
    """What the configured evaluators say of a trace; nothing is stored. Raises the `LLMError` of a
    model that fails unless `or_rules`.
    """
    case = await asyncio.to_thread(case_of, trace, events, run_id)
    settings = runtime.settings
    evaluators = open_evaluators(settings, runtime.llm)
    return await evaluate(case, evaluators, thresholds_of(settings), or_rules=or_rules)


async def store_evaluation(
    session: AsyncSession, trace_id: UUID, run_id: UUID, evaluation: TraceEvaluation
) -> None:
    """Keep the scores: one row per (trace, evaluator, criterion), however often it is done. A score
    that an evaluator no longer gives goes; those of evaluators that were not asked stay.
    """
    scores = {name: _storable(found) for name, found in evaluation.found.items()}
    await queries.keep_scores(session, trace_id, run_id, scores)


def _storable(found: Found) -> list[Score]:
    """The first score of each criterion, its reasons in bounds: evaluators may be anybody's."""
    first = {score.criterion: score for score in reversed(found.scores)}
    return [
        replace(score, reasons=tuple(cut(reason, REASON) for reason in score.reasons[:REASONS]))
        for score in first.values()
    ]
