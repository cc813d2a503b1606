"""The words of spec 1: a trajectory in, insights and verdicts out. Its `ReflectionResult` is not
the one of spec 5 (`schemas.py`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from apps.memory_api.playbook.schemas import Vote


class Trajectory(BaseModel):
    """How an agent came to its answer. `reasoning_steps` in their order; `used_bullet_ids` are keys
    of the playbook `dataset`. Unknown fields are ignored.
    """

    model_config = ConfigDict(populate_by_name=True, extra="ignore")

    query: str
    generated_answer: str
    reasoning_steps: list[str] = Field(default_factory=list)
    used_bullet_ids: list[str] = Field(
        default_factory=list, validation_alias=AliasChoices("used_bullet_ids", "used_keys")
    )
    dataset: str = ""
    status: Literal["success", "failure"] | None = None
    """What the agent knows of the outcome; tests and the right answer know better."""
    error_message: str | None = None

    @field_validator("reasoning_steps", mode="before")
    @classmethod
    def _one_text_is_its_lines(cls, value: Any) -> Any:
        return value.splitlines() if isinstance(value, str) else value


class Insight(BaseModel):
    """One lesson of the reflector, with how it was found."""

    reasoning: str = Field(description="How you came to this, from what the trajectory shows")
    error_identification: str = Field(description="What was wrong, exactly; empty if nothing was")
    root_cause_analysis: str = Field(description="Why it went wrong, or why it worked")
    correct_approach: str = Field(description="What should have been done, or is to be kept")
    key_insight: str = Field(description="The lesson as one rule: when, and what to do")


class BulletEvaluation(BaseModel):
    """A verdict on one bullet that was used."""

    bullet_id: str = Field(description="The bullet's id, without its brackets")
    tag: Vote = Field(
        description="helpful: it was followed and did good; harmful: it was followed and led "
        "astray; neutral: neither can be seen"
    )
    reason: str = Field(description="What in the trajectory shows it, 1 sentence")


class ReflectionResult(BaseModel):
    """All that the reflector gives. `iteration_count` is the number of rounds that were really
    done: 0 when the model failed in the first.
    """

    insights: list[Insight]
    bullet_evaluations: list[BulletEvaluation]
    trajectory_query: str
    trajectory_dataset: str
    iteration_count: int = Field(1, ge=0, strict=True)
