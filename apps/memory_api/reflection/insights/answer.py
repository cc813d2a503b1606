"""What a model is asked for by spec 1's reflector, and how its text is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import structlog
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from apps.memory_api.llm.parsing import parsed
from apps.memory_api.playbook.schemas import Vote
from apps.memory_api.reflection.insights.schemas import BulletEvaluation, Insight
from apps.memory_api.reflection.response import readable

log = structlog.get_logger()


class ReflectorAnswer(BaseModel):
    """One round of analysis. A bare list is its insights."""

    insights: list[Insight] = Field(description="At most three, the most useful first")
    bullet_evaluations: list[BulletEvaluation] = Field(
        default_factory=list[BulletEvaluation],
        description="One verdict on each bullet that was used; empty when there was none",
    )

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, value: Any) -> Any:
        return {"insights": value} if _is_filled_list(value) else value

    @field_validator("bullet_evaluations", mode="before")
    @classmethod
    def _readable(cls, value: Any) -> list[BulletEvaluation]:
        return readable(BulletEvaluation, value)


def _is_filled_list(value: Any) -> bool:
    return isinstance(value, list) and bool(cast("list[Any]", value))


class OneVerdict(BaseModel):
    """The answer to the question about one bullet."""

    tag: Vote = Field(description="helpful, harmful or neutral")
    reason: str = Field(description="What in the trajectory shows it, 1 sentence")


def read_insights(text: str) -> list[Insight]:
    """The insights in a model's text; none, and a line in the log, when it cannot be read."""
    for candidate in _readings(text):
        try:
            return ReflectorAnswer.model_validate(candidate).insights
        except ValidationError:
            continue
    log.warning("insights_unreadable", length=len(text))
    return []


def _readings(text: str) -> Iterator[Any]:
    """The whole text first, exactly as it is: what is JSON throughout may quote other JSON."""
    with suppress(ValueError, RecursionError):
        yield json.loads(text)
    yield from parsed(text)
