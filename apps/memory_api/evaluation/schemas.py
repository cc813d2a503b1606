"""What an evaluation says, and the shapes of its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal
from uuid import UUID

from apps.memory_api.core.openapi import shown
from apps.memory_api.core.schemas import Model, Time, Unit
from apps.memory_api.llm.errors import LLMError
from apps.memory_api.traces.schemas import OutcomeType

Framework = Literal["pytest", "unittest", "jest", "go"]


class Criterion(StrEnum):
    CORRECTNESS = "correctness"
    HELPFULNESS = "helpfulness"
    SAFETY = "safety"
    COMPLETENESS = "completeness"
    EFFICIENCY = "efficiency"


@dataclass(frozen=True, slots=True)
class TestCase:
    """A test that failed. `message` is one line, "" when the report gives none; `file` and `line`
    are where it failed, as far as the report tells.
    """

    __test__: ClassVar[bool] = False

    name: str
    message: str = ""
    file: str | None = None
    line: int | None = None
    error: bool = False
    """It could not be run (collection, set-up, build), rather than failed."""


@dataclass(frozen=True, slots=True)
class TestReport:
    """What a test runner printed. `framework` is None when the text is no report we can read.

    `failing` are at most a hundred of the tests that make up `failed` and `errors`. Tests that were
    expected to fail and did are counted as skipped.
    """

    __test__: ClassVar[bool] = False

    framework: Framework | None = None
    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    failing: tuple[TestCase, ...] = ()

    @property
    def bad(self) -> int:
        return self.failed + self.errors

    @property
    def ran(self) -> int:
        return self.passed + self.bad


@dataclass(frozen=True, slots=True)
class Comparison:
    """An answer beside the right one.

    `relation`: same; wider (the right answer and more words); narrower (a part of the right
    answer); different; unknown (wording cannot tell). `score` 0 to 1, None when unknown.
    """

    kind: Literal["text", "number", "code"]
    relation: Literal["same", "wider", "narrower", "different", "unknown"]
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Score:
    """One criterion as one evaluator sees it: `score` from 0 (worst) to 1, with its reasons.
    `proven` says that tests or the right answer decide it, not an opinion.
    """

    criterion: Criterion
    score: float
    reasons: tuple[str, ...]
    proven: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"a score of {self.criterion} is from 0 to 1, not {self.score!r}")


@dataclass(frozen=True, slots=True)
class Found:
    """What one evaluator found; no score for a criterion it cannot tell. `prompt_hash` and `usage`
    (see `llm.counted`) when it asked a model.
    """

    scores: tuple[Score, ...] = ()
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TraceEvaluation:
    """What each evaluator found, by name, in the order in which they are believed.

    `verdict` is what their scores make of the run, None when nothing speaks to it; `proven` when
    tests or the right answer decided that. `failure` is why a model's scores are missing.
    """

    found: Mapping[str, Found] = field(default_factory=dict[str, Found])
    verdict: OutcomeType | None = None
    proven: bool = False
    failure: LLMError | None = None

    @property
    def prompt_hash(self) -> str | None:
        return next((f.prompt_hash for f in self.found.values() if f.prompt_hash), None)

    @property
    def usage(self) -> dict[str, Any] | None:
        return next((f.usage for f in self.found.values() if f.usage), None)

    def best(self, criterion: Criterion) -> Score | None:
        """The score that counts."""
        return strongest([s for found in self.found.values() for s in found.scores], criterion)


def strongest(scores: Iterable[Score], criterion: Criterion) -> Score | None:
    """The score of a criterion that counts: a proven one before an opinion, else the first."""
    mine = [score for score in scores if score.criterion is criterion]
    return next((score for score in mine if score.proven), mine[0] if mine else None)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to reflect on a run. `importance` 0 to 1, None when not."""

    reflect: bool
    importance: float | None
    reason: str


EXAMPLE: dict[str, Any] = {
    "evaluator": "deterministic",
    "criterion": "correctness",
    "score": 0.25,
    "reasons": ["pytest: 1 of 2 tests failed", "test_cart.py::test_total: assert 3 == 4"],
    "run_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa05",
    "created_at": "2026-11-21T09:00:00Z",
}


class EvaluationView(Model):
    """One criterion of a trace as one evaluator sees it."""

    model_config = shown(EXAMPLE)

    evaluator: str
    criterion: Criterion
    score: Unit
    reasons: list[str]
    run_id: UUID | None
    created_at: Time
