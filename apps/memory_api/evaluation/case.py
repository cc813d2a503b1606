"""A run as evaluators see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.memory_api.evaluation.schemas import Score
from apps.memory_api.traces.events import as_events
from apps.memory_api.traces.schemas import ErrorInfo, OutcomeType
from apps.memory_api.traces.steps import Run, read
from apps.memory_api.traces.tables import Trace, TraceEvent


@dataclass(frozen=True)
class Case:
    """What happened, and what is known beside it. `known` are the scores of the evaluators asked
    before; `outcome` is what the sender says, None when nobody said it.
    """

    run: Run
    outcome: OutcomeType | None = None
    error: ErrorInfo | None = None
    task_description: str | None = None
    task_goal: str | None = None
    answer: str | None = None
    ground_truth: Any = None
    test_report: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    known: tuple[Score, ...] = ()
    tenant_id: UUID | None = None
    playbook: str | None = None
    run_id: UUID | None = None
    """The run of ours that evaluates; a model's calls are recorded under it."""


def case_of(trace: Trace, events: Sequence[TraceEvent], run_id: UUID | None = None) -> Case:
    """A stored trace."""
    return Case(
        run=read(as_events(events), trace.task_description, trace.task_goal),
        outcome=OutcomeType(trace.outcome) if trace.outcome else None,
        error=ErrorInfo.model_validate(trace.error) if trace.error else None,
        task_description=trace.task_description,
        task_goal=trace.task_goal,
        answer=trace.generated_answer,
        ground_truth=trace.ground_truth,
        test_report=trace.test_report,
        metadata=trace.metadata_,
        tenant_id=trace.tenant_id,
        playbook=trace.playbook,
        run_id=run_id,
    )
