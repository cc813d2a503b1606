"""Why an agent run taught nothing, and what a waiting bullet needs: the sentences of the command
line, which the console of the service translates.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol, cast

from hansei._model import Json

LEARNED_BY_RULES = (
    "without a model, Hansei learns from a failed call that works after its arguments change, an "
    "identical call that is repeated without effect, attempts at one task that differ, and an "
    "error category that you send. For a failed call, send `error` with its result: Hansei does "
    "not read an error out of a text. A model reads more."
)


class WhyNothing(StrEnum):
    """The values are sentences. The reason of the evaluation follows the first one."""

    NOT_REFLECTED_ON = "Not reflected on:"
    RUNNING = "Nothing yet."
    RULES = f"Nothing to learn: {LEARNED_BY_RULES}"
    NOTHING_FOUND = "Nothing to learn"
    OPEN = "The trace is open: Hansei learns when it is closed."
    NO_OUTCOME = "No outcome is known. State it, and Hansei learns from the trace."
    SWITCHED_OFF = "No learning run was started: the request or a setting switched learning off."


NO_LESSON_BY_RULES = f"No lesson follows from it: {LEARNED_BY_RULES}"
NO_LESSON = "No lesson follows from it."
CONFIRMATION_RULE = (
    "A run with other events, not only other numbers, must teach the same, or you confirm it."
)
"""What a bullet awaits that repeats text of one run."""


class FinishedRun(Protocol):
    """A run as the client and the service represent it."""

    @property
    def kind(self) -> str: ...
    @property
    def engine(self) -> str | None: ...
    @property
    def finished_at(self) -> Any: ...
    @property
    def result(self) -> Any: ...


def why_nothing(
    runs: Sequence[FinishedRun], *, is_open: bool, has_outcome: bool
) -> tuple[WhyNothing, str]:
    """Why a trace taught nothing, and the reason of its evaluation or "".

    Args:
        runs: The runs of the trace, newest first.
        has_outcome: Whether an outcome, a known answer or a test report came with the trace.
    """
    evaluation = evaluation_of(runs)
    if evaluation.get("reflect") is False:
        return WhyNothing.NOT_REFLECTED_ON, str(evaluation.get("reason") or "")
    if any(run.finished_at is None for run in runs):
        return WhyNothing.RUNNING, ""
    if runs:
        by_rules = any(run.engine == "rules" for run in runs)
        return WhyNothing.RULES if by_rules else WhyNothing.NOTHING_FOUND, ""
    if is_open:
        return WhyNothing.OPEN, ""
    return WhyNothing.SWITCHED_OFF if has_outcome else WhyNothing.NO_OUTCOME, ""


def evaluation_of(runs: Sequence[FinishedRun]) -> Json:
    """The result of the newest evaluation, {} without one."""
    return next((run.result for run in runs if run.kind == "evaluate" and run.result), None) or {}


def why_run_found_nothing(run: FinishedRun) -> str | None:
    """Why a finished run of learning has no lesson. None for other runs and if it has one."""
    if not isinstance(run.result, dict):
        return None
    result = cast(Json, run.result)
    if run.kind == "evaluate" and result.get("reflect") is False:
        return f"{WhyNothing.NOT_REFLECTED_ON} {result.get('reason') or ''}".rstrip()
    if run.kind != "reflect":
        return None
    if result.get("result") == "nothing_found":
        return WhyNothing.RULES if run.engine == "rules" else f"{WhyNothing.NOTHING_FOUND}."
    if not result.get("strategy_id") and not result.get("strategies"):
        return NO_LESSON_BY_RULES if run.engine == "rules" else NO_LESSON
    return None
