"""Asks the evaluators in their order and draws the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from apps.memory_api.evaluation.case import Case
from apps.memory_api.evaluation.port import Evaluator
from apps.memory_api.evaluation.schemas import Criterion, Found, TraceEvaluation, strongest
from apps.memory_api.evaluation.threshold import Thresholds
from apps.memory_api.llm.errors import LLMError

DECIDES = (Criterion.CORRECTNESS, Criterion.HELPFULNESS)
"""What a verdict is drawn from: the second where there is nothing of the first."""

log = structlog.get_logger()


async def evaluate(
    case: Case,
    evaluators: Sequence[tuple[str, Evaluator]],
    thresholds: Thresholds,
    *,
    or_rules: bool = False,
) -> TraceEvaluation:
    """Each evaluator sees what those before it scored. A model that fails raises its `LLMError`;
    with `or_rules` the others stand without it and `failure` says why.
    """
    found: dict[str, Found] = {}
    failure: LLMError | None = None
    for name, evaluator in evaluators:
        try:
            found[name] = await evaluator.evaluate(case)
        except LLMError as error:
            if not or_rules:
                raise
            log.warning("evaluated_without_model", evaluator=name, code=error.code)
            failure = error
        else:
            case = replace(case, known=(*case.known, *found[name].scores))
    deciding = next(filter(None, (strongest(case.known, c) for c in DECIDES)), None)
    return TraceEvaluation(
        found,
        thresholds.verdict(deciding) if deciding else None,
        deciding is not None and deciding.proven,
        failure,
    )
