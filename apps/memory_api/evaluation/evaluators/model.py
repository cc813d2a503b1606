"""An LLM as evaluator: one call per trace, or none if all criteria are proven.

The prompt starts with fixed text, so providers can cache it; the trace follows, redacted, cut to a
budget and fenced. Scores of a model are opinions: a criterion that tests or the ground truth decide
is never taken from a model, and scores are limited to 0 to 1. So text in a trace that instructs the
model can change an opinion only.
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from pydantic import BaseModel, Field, field_validator

from memory_api.core.errors import ConfigurationError
from memory_api.core.secret_redaction import redact, redact_value
from memory_api.core.settings import Settings
from memory_api.evaluation.schemas import (
    Criterion,
    CriterionScore,
    EvaluationInput,
    EvaluatorResult,
)
from memory_api.llm.port import LLM, LLMRequest
from memory_api.llm.prompts import Prompt, PromptMessages, split_cacheable_prefix
from memory_api.llm.structured_output import request_structured, schema_text
from memory_api.llm.untrusted_text import PromptPiece, fence_text, fit_pieces, fit_text
from memory_api.llm.wrappers import MeteredLLM
from memory_api.runtime import load_tenant_prompt
from memory_api.text.excerpts import excerpt
from memory_api.text.terms import estimate_tokens
from memory_api.trace_analysis.parser import ParsedTrace
from memory_api.traces.schemas import Event, EventType

NAME = "evaluation/evaluate"
_NONE = "(none)"
# Sixteenths of the budget. The events get the remaining tokens.
_BUDGET_SHARES = {"goal": 1, "task": 2, "answer": 2, "evidence": 3, "findings": 1}
_MIN_PIECE_TOKENS = 64


def build_messages(prompt: Prompt, case: EvaluationInput, *, budget: int) -> PromptMessages:
    """A system message that is equal for every run, then the run. `budget` is the number of
    estimated tokens for the run.
    """
    parts = {
        name: max(_MIN_PIECE_TOKENS, budget * share // 16) for name, share in _BUDGET_SHARES.items()
    }
    known = (f"{s.criterion} {s.score:.2f}: {'; '.join(s.reasons)}" for s in case.known)
    values = {
        "goal": _text(case.task_goal, "goal", parts["goal"]),
        "task": _text(case.task_description, "task", parts["task"]),
        "answer": _text(case.answer, "answer", parts["answer"]),
        "evidence": _external_evidence(case, parts["evidence"]),
        "findings": _text("\n".join(known), "findings", parts["findings"]),
    }
    remaining = budget - sum(map(estimate_tokens, values.values()))
    values["events"] = fence_text(
        fit_pieces(_event_pieces(case.run), max(_MIN_PIECE_TOKENS, remaining)), label="events"
    )
    values["schema"] = schema_text(ModelEvaluation)
    return split_cacheable_prefix(prompt.text, values)


def _text(text: str | None, label: str, budget: int) -> str:
    return fence_text(fit_text(redact(text).text, budget), label=label) if text else _NONE


def _external_evidence(case: EvaluationInput, budget: int) -> str:
    ground_truth = case.ground_truth
    answer = ground_truth if isinstance(ground_truth, str | None) else _json(ground_truth)
    sections = (
        ("Right answer:", _text(answer, "right-answer", budget // 2)),
        ("Test report:", _text(case.test_report, "test-report", budget // 2)),
    )
    return "\n".join(f"{title}\n{text}" for title, text in sections if text != _NONE) or _NONE


def _event_pieces(run: ParsedTrace) -> list[PromptPiece]:
    return [
        PromptPiece(
            _format_event(event, name),
            bool(event.error) or event.event_type is EventType.ERROR_EVENT,
        )
        for event, name in zip(run.events, run.event_ids, strict=True)
    ]


def _format_event(event: Event, name: str) -> str:
    header = " ".join(filter(None, (event.event_type.value, event.tool_name)))
    error = f"\n  error: {_json(event.error)}" if event.error else ""
    return f"[{name}] {header}: {redact(event.content).text}{error}"


def _json(value: Any) -> str:
    redacted, _ = redact_value(value)
    return json.dumps(redacted, ensure_ascii=False, default=str)


_MAX_REASON_CHARACTERS = 300


class ModelCriterionScore(BaseModel):
    """One criterion in the model's output."""

    criterion: Criterion
    score: float = Field(description="0 (worst) to 1 (best)")
    reason: str = Field("", description="One sentence that names the event or fact it rests on")

    @field_validator("score")
    @classmethod
    def _limit_score(cls, value: float) -> float:
        if math.isnan(value):
            raise ValueError("a score must be a number from 0 to 1")
        return min(1.0, max(0.0, value))


class ModelEvaluation(BaseModel):
    """The output that a model must give."""

    scores: list[ModelCriterionScore] = Field(
        description="At most one for each criterion; none for what the run does not show"
    )


class ModelEvaluator:
    """Asks a model for the criteria without proof. Raises the model's `LLMError`; `run_evaluators`
    decides whether the evaluation goes on without it.
    """

    def __init__(self, llm: LLM, settings: Settings) -> None:
        self.llm = llm
        self.settings = settings

    async def evaluate(self, case: EvaluationInput) -> EvaluatorResult:
        proven = {score.criterion for score in case.known if score.proven}
        if len(proven) == len(Criterion):
            return EvaluatorResult()
        prompt = load_tenant_prompt(self.settings, NAME, case.tenant_id, case.playbook)
        messages = await asyncio.to_thread(
            build_messages, prompt, case, budget=self.settings.llm_prompt_tokens
        )
        metered_llm = MeteredLLM(self.llm)
        reply, _ = await request_structured(
            metered_llm,
            ModelEvaluation,
            LLMRequest(
                messages.messages,
                max_tokens=self.settings.llm_max_tokens,
                timeout=self.settings.llm_timeout,
                cache_prefix=messages.cache_prefix,
                purpose="evaluate",
                prompt_hash=prompt.hash,
                tenant_id=case.tenant_id,
                project_id=case.project_id,
                run_id=case.run_id,
            ),
        )
        return EvaluatorResult(_scores(reply, proven), prompt.hash, metered_llm.usage())


def _scores(reply: ModelEvaluation, proven: set[Criterion]) -> tuple[CriterionScore, ...]:
    """The first score of each criterion without proof."""
    score_by_criterion: dict[Criterion, CriterionScore] = {}
    for score in reply.scores:
        reasons = tuple(filter(None, [excerpt(redact(score.reason).text, _MAX_REASON_CHARACTERS)]))
        score_by_criterion.setdefault(
            score.criterion, CriterionScore(score.criterion, score.score, reasons)
        )
    return tuple(
        score for criterion, score in score_by_criterion.items() if criterion not in proven
    )


def open_evaluator(settings: Settings, llm: LLM | None) -> ModelEvaluator:
    if llm is None:
        raise ConfigurationError(
            "HANSEI_EVALUATORS has llm, which needs a model (HANSEI_LLM_PROVIDER)."
        )
    return ModelEvaluator(llm, settings)
