"""Runs to be evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.data import to_trace
from memory_api.evaluation.evaluate import run_evaluators
from memory_api.evaluation.evaluators.deterministic import DeterministicEvaluator
from memory_api.evaluation.evaluators.threshold import ThresholdEvaluator, Thresholds
from memory_api.evaluation.schemas import (
    Criterion,
    CriterionScore,
    EvaluationInput,
    EvaluationResults,
)
from memory_api.trace_analysis.parser import parse_trace
from memory_api.traces.schemas import CreateTraceRequest

Row = dict[str, Any]


def call(tool: str, content: str, response: str | None = "ok", **more: Any) -> list[Row]:
    """A call and its response; without one when `response` is None."""
    rows: list[Row] = [{"event_type": "tool_call", "tool_name": tool, "content": content}]
    if response is not None:
        rows.append({"event_type": "tool_response", "tool_name": tool, "content": response, **more})
    return rows


def said(text: str) -> Row:
    return {"event_type": "llm_response", "content": text}


def case(events: Sequence[Row] = (), **fields: Any) -> EvaluationInput:
    """A trace as it is sent, as evaluators see it."""
    rows = list(events) or [{"event_type": "user_message", "content": "hello"}]
    body = CreateTraceRequest.model_validate(to_trace({"events": rows, **fields}))
    return EvaluationInput(
        run=parse_trace(body.events, body.task_description, body.task_goal, body.tools),
        outcome=body.outcome,
        error=body.error,
        task_description=body.task_description,
        task_goal=body.task_goal,
        answer=body.generated_answer,
        ground_truth=body.ground_truth,
        test_report=body.test_report,
        metadata=body.metadata,
    )


async def judged(events: Sequence[Row] = (), **fields: Any) -> EvaluationResults:
    """By the two evaluators that are on by default."""
    evaluators = [("deterministic", DeterministicEvaluator()), ("threshold", ThresholdEvaluator())]
    return await run_evaluators(case(events, **fields), evaluators, Thresholds())


async def score_of(
    criterion: Criterion, events: Sequence[Row] = (), **fields: Any
) -> CriterionScore | None:
    return (await judged(events, **fields)).best(criterion)
