"""The model's answers to the reflector of S1, and how they are parsed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from memory_api.core.telemetry import get_logger
from memory_api.llm.structured_output import json_candidates
from memory_api.playbooks.models import VerdictTag
from memory_api.reflection.model_output import valid_items
from memory_api.reflection.trajectories.schemas import BulletEvaluation, Insight

log = get_logger(__name__)


class ModelInsights(BaseModel):
    """The answer of one round. A bare list is taken as the insights."""

    insights: list[Insight] = Field(description="At most three, the most useful first")
    bullet_evaluations: list[BulletEvaluation] = Field(
        default_factory=list[BulletEvaluation],
        description="One verdict on each bullet that was used; empty when there was none",
    )

    @model_validator(mode="before")
    @classmethod
    def _wrap_list(cls, value: Any) -> Any:
        return {"insights": value} if _is_filled_list(value) else value

    @field_validator("insights", mode="before")
    @classmethod
    def _valid_insights(cls, value: Any) -> Any:
        """Without malformed insights. A list of nothing else is refused as it is."""
        insights = valid_items(Insight, value)
        if insights and len(insights) < len(value):
            log.warning("insights_malformed", count=len(value) - len(insights))
        return insights or value

    @field_validator("bullet_evaluations", mode="before")
    @classmethod
    def _valid_evaluations(cls, value: Any) -> list[BulletEvaluation]:
        return valid_items(BulletEvaluation, value)


def _is_filled_list(value: Any) -> bool:
    return isinstance(value, list) and bool(cast("list[Any]", value))


class SingleVerdict(BaseModel):
    """The verdict on one bullet."""

    tag: VerdictTag = Field(description="helpful, harmful or neutral")
    reason: str = Field(description="What in the trajectory shows it, 1 sentence")


def parse_insights(text: str) -> list[Insight]:
    """The insights in a model's text; none, with a log entry, if it cannot be parsed."""
    for candidate in _json_values(text):
        try:
            return ModelInsights.model_validate(candidate).insights
        except ValidationError:
            continue
    log.warning("insights_unreadable", length=len(text))
    return []


def _json_values(text: str) -> Iterator[Any]:
    """The whole text first: a JSON text may contain other JSON in its strings."""
    with suppress(ValueError, RecursionError):
        yield json.loads(text)
    yield from json_candidates(text)
