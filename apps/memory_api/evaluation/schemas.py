"""Scores, verdicts, and the input of an evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import Field

from memory_api.core.schemas import Page, ResponseModel, UnitFloat, UtcDatetime, with_examples
from memory_api.llm.errors import LLMError
from memory_api.trace_analysis.ground_truth import comparison_size
from memory_api.trace_analysis.parser import ParsedTrace
from memory_api.traces.schemas import ErrorInfo, OutcomeType

MAX_REASONS, MAX_REASON_LENGTH = 10, 400
"""Reasons stored of one score, and characters of a reason."""


class Criterion(StrEnum):
    CORRECTNESS = "correctness"
    HELPFULNESS = "helpfulness"
    SAFETY = "safety"
    COMPLETENESS = "completeness"
    EFFICIENCY = "efficiency"


@dataclass(frozen=True, slots=True)
class CriterionScore:
    """The score of one criterion by one evaluator, 0 (worst) to 1, with its reasons. `proven`:
    tests or the ground truth decide it. `declared`: by a check that the client declared, which is a
    test report, a ground truth with `match`, or expected calls.
    """

    criterion: Criterion
    score: float
    reasons: tuple[str, ...]
    proven: bool = False
    declared: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(
                f"A score of {self.criterion} must be from 0 to 1, not {self.score!r}."
            )


@dataclass(frozen=True, slots=True)
class EvaluatorResult:
    """The result of one evaluator; no score for criteria without evidence. `prompt_hash` and
    `usage` if it called a model.
    """

    scores: tuple[CriterionScore, ...] = ()
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class EvaluationResults:
    """The results by evaluator, in order of precedence.

    `verdict` is the outcome by their scores, None without scores; `proven` if tests or the ground
    truth decided it, `declared` if a check that the client declared did. `failures` states why the
    scores of an evaluator are missing.
    """

    found: Mapping[str, EvaluatorResult] = field(default_factory=dict[str, EvaluatorResult])
    verdict: OutcomeType | None = None
    proven: bool = False
    declared: bool = False
    failures: Mapping[str, LLMError] = field(default_factory=dict[str, LLMError])

    @property
    def declared_outcome(self) -> OutcomeType | None:
        """Success or failure by a check that the client declared; None without one."""
        if not self.declared:
            return None
        is_met = self.verdict is OutcomeType.SUCCESS
        return OutcomeType.SUCCESS if is_met else OutcomeType.FAILURE

    @property
    def failure(self) -> LLMError | None:
        """The error of the first evaluator that failed."""
        return next(iter(self.failures.values()), None)

    @property
    def prompt_hash(self) -> str | None:
        return next(
            (result.prompt_hash for result in self.found.values() if result.prompt_hash), None
        )

    @property
    def usage(self) -> dict[str, Any] | None:
        return next((result.usage for result in self.found.values() if result.usage), None)

    def best(self, criterion: Criterion) -> CriterionScore | None:
        """The score with precedence."""
        return best_score(
            [score for result in self.found.values() for score in result.scores], criterion
        )


def best_score(scores: Iterable[CriterionScore], criterion: Criterion) -> CriterionScore | None:
    """The score of a criterion with precedence: a proven one, else the first."""
    matching = [score for score in scores if score.criterion is criterion]
    return next((score for score in matching if score.proven), matching[0] if matching else None)


@dataclass(frozen=True, slots=True)
class ReflectionDecision:
    """Whether to reflect on a run. `importance` is 0 to 1, None if not."""

    reflect: bool
    importance: float | None
    reason: str


EVALUATION_EXAMPLE: dict[str, Any] = {
    "evaluator": "deterministic",
    "criterion": "correctness",
    "score": 0.25,
    "reasons": ["1 of 2 tests failed.", "test_cart::test_total: assert 3 == 4"],
    "declared": True,
    "run_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa05",
    "created_at": "2026-11-21T09:00:00Z",
}


class TraceEvaluation(ResponseModel):
    """The score of one criterion of a trace by one evaluator."""

    model_config = with_examples(EVALUATION_EXAMPLE)

    evaluator: str = Field(description="Such as `deterministic` or `model`.")
    criterion: Criterion
    score: UnitFloat = Field(description="From 0 (worst) to 1 (best).")
    reasons: list[str]
    declared: bool = Field(
        description="Whether a check that the client declared decided it: a test report, a ground "
        "truth with `match`, or expected calls."
    )
    run_id: UUID | None = Field(description="The run of kind `evaluate` that gave the score.")
    created_at: UtcDatetime


class TraceEvaluationPage(Page[TraceEvaluation]):
    """The evaluations of one trace."""


@dataclass(frozen=True)
class EvaluationInput:
    """A run and its evidence. `known` are the scores of earlier evaluators; `outcome` is the
    reported one, None if it was not reported.
    """

    run: ParsedTrace
    outcome: OutcomeType | None = None
    error: ErrorInfo | None = None
    task_description: str | None = None
    task_goal: str | None = None
    answer: str | None = None
    ground_truth: Any = None
    test_report: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    known: tuple[CriterionScore, ...] = ()
    tenant_id: UUID | None = None
    project_id: str | None = None
    playbook: str | None = None
    run_id: UUID | None = None
    """The run of this service that evaluates; model calls are recorded under it."""

    @property
    def size(self) -> int:
        """About how many characters there are to evaluate."""
        texts = (self.task_description, self.task_goal, self.answer, self.test_report)
        size = sum(len(event.content) + 100 for event in self.run.events)
        size += sum(len(text) for text in texts if text)
        return size + comparison_size(self.ground_truth, len(self.run.calls), size)
