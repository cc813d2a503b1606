"""The evaluator that asks a model: one call, and none where everything is proven already.

What it says is an opinion. It stands beside the evidence and never over it: a criterion that tests
or the right answer decide is not taken from a model, scores are held within 0 and 1, and whoever
obeys a text of the trace moves no more than an opinion.
"""

from __future__ import annotations

import asyncio
import math

from pydantic import BaseModel, Field, field_validator

from apps.memory_api.core.errors import Misconfigured
from apps.memory_api.core.prompts import load
from apps.memory_api.core.redaction import redact
from apps.memory_api.core.settings import Settings
from apps.memory_api.evaluation.case import Case
from apps.memory_api.evaluation.prompt import BUILTIN, NAME, compose
from apps.memory_api.evaluation.schemas import Criterion, Found, Score
from apps.memory_api.llm.counted import Counted
from apps.memory_api.llm.port import LLM, LLMRequest
from apps.memory_api.llm.structured import ask, strict_schema
from apps.memory_api.traces.quotes import cut

_REASON = 300


class CriterionScore(BaseModel):
    """One criterion as a model writes it."""

    criterion: Criterion
    score: float = Field(description="0 (worst) to 1 (best)")
    reason: str = Field("", description="One sentence that names the event or fact it rests on")

    @field_validator("score")
    @classmethod
    def _held(cls, value: float) -> float:
        if math.isnan(value):
            raise ValueError("a score is a number from 0 to 1")
        return min(1.0, max(0.0, value))


class LLMEvaluation(BaseModel):
    """What a model is asked for."""

    scores: list[CriterionScore] = Field(
        description="At most one for each criterion; none for what the run does not show"
    )


class LLMEvaluator:
    """Asks a model for what is not proven. Raises the model's `LLMError`."""

    def __init__(self, llm: LLM, settings: Settings) -> None:
        self.llm = llm
        self.settings = settings

    async def evaluate(self, case: Case) -> Found:
        proven = {score.criterion for score in case.known if score.proven}
        if len(proven) == len(Criterion):
            return Found()
        prompt = load(
            NAME,
            tenant=str(case.tenant_id) if case.tenant_id else None,
            playbook=case.playbook,
            operator=self.settings.prompts_dir,
            builtin=BUILTIN,
        )
        schema = strict_schema(LLMEvaluation)
        messages = await asyncio.to_thread(
            compose, prompt, case, schema, budget=self.settings.llm_prompt_tokens
        )
        counted = Counted(self.llm)
        said, _ = await ask(
            counted,
            LLMEvaluation,
            LLMRequest(
                tuple(messages),
                max_tokens=self.settings.llm_max_tokens,
                timeout=self.settings.llm_timeout,
                cache_prefix=len(messages) - 1,
                purpose="evaluate",
                prompt_hash=prompt.hash,
                tenant_id=case.tenant_id,
                run_id=case.run_id,
            ),
        )
        return Found(_scores(said, proven), prompt.hash, counted.usage())


def _scores(said: LLMEvaluation, proven: set[Criterion]) -> tuple[Score, ...]:
    """The first score of each criterion that is open."""
    first: dict[Criterion, Score] = {}
    for one in said.scores:
        reasons = tuple(filter(None, [cut(redact(one.reason).text, _REASON)]))
        first.setdefault(one.criterion, Score(one.criterion, one.score, reasons))
    return tuple(score for criterion, score in first.items() if criterion not in proven)


def open_evaluator(settings: Settings, llm: LLM | None) -> LLMEvaluator:
    if llm is None:
        raise Misconfigured("HANSEI_EVALUATORS has llm, which needs a model (HANSEI_LLM_PROVIDER).")
    return LLMEvaluator(llm, settings)
