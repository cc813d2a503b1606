"""The settings of learning: how a trace is evaluated and reflected on, when lessons are curated.
`Settings` inherits them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings


class LearningSettings(BaseSettings):
    """The part of `Settings` about learning."""

    evaluators: str = Field(
        "deterministic,threshold",
        description="Evaluators of a trace, most trusted first: deterministic, threshold, llm (one "
        "more model call per trace), or a custom NAME=module:function.",
    )
    evaluation_thresholds: str = Field(
        "0.3,0.8",
        description="Highest score of a failure and lowest score of a success. Append, for "
        "example, `;safety=0.5,1` for a criterion with other limits.",
    )
    routine_reflection_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of routine successes that a model reflects on in `auto`: those without "
        "a failed call that call the same tools in the same order as three earlier successes of "
        "their playbook. 1: all.",
    )
    reflection_batch_size: int = Field(
        8,
        ge=1,
        le=8,
        description="Maximum number of short runs of a playbook that share one model call for "
        "their reflections, if they wait at the same time. 1: each has its own.",
    )
    reflection_batch_tokens: int = Field(
        500,
        ge=0,
        le=4_000,
        description="Maximum size of a short run, in estimated tokens of its task and events.",
    )
    curation_interval: float = Field(
        10.0,
        ge=0,
        le=3_600,
        description="Seconds that a short run or a lesson waits for others of its playbook that "
        "are being evaluated or reflected on, unless a batch is full. Longer: fewer model calls.",
    )
    advice_holdout_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of agent runs that get no advice, drawn at random by session, so that "
        "the success with and without it can be compared. 0: all get advice.",
    )
    on_model_failure: Literal["rules", "fail"] = Field(
        "rules",
        description="What a synchronous request returns if the model fails. `fail`: 502, 503 or "
        "504. `rules`: a degraded reflection or workflow answer from the rules engine; a worker "
        "improves the reflection later. For trajectories and transcripts, `rules` returns an empty "
        "result with the reason, and a worker retries. Budgets have their own `when_spent`.",
    )
    trusted_feedback: str = Field(
        "",
        pattern="^((error|ground_truth|test_report)(,(error|ground_truth|test_report))*)?$",
        description="Fields of a trace that your own checkers fill: some of error, ground_truth, "
        "test_report, separated by commas. Advice that repeats them does not wait.",
    )
