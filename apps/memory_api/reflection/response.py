"""What a model is asked for (spec 5), read leniently: models write numbers as words and lists as
text.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from typing import Any, TypeVar, cast

from pydantic import BaseModel, Field, ValidationError, field_validator

from apps.memory_api.playbook.schemas import Vote

M = TypeVar("M", bound=BaseModel)

MOST_TAGS = 10
MOST_SOURCES = 5
_TAG_LENGTH = 64
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,20})?")
_NOTHING = frozenset({"", "null", "none", "n/a"})


class BulletVerdict(BaseModel):
    """What a model says of one bullet that the run used."""

    key: str = Field(description="The bullet's key, without its brackets")
    tag: Vote = Field(
        description="helpful: it was followed and did good; harmful: it was followed and led "
        "astray; neutral: neither can be seen"
    )
    reason: str = Field(description="What in the trace shows it, 1 sentence")

    @field_validator("key", mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return value.strip(" []\"'") if isinstance(value, str) else value

    @field_validator("tag", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.strip().lower() if isinstance(value, str) else value


def readable(model: type[M], value: Any) -> list[M]:
    """Those items of a list that are a `model`; a wrong one takes no other along."""
    found: list[M] = []
    for item in cast("list[Any]", value) if isinstance(value, list) else []:
        try:
            found.append(model.model_validate(item))
        except ValidationError:
            continue
    return found


class LLMReflectionResponse(BaseModel):
    """One reflection as a model writes it."""

    reflection: str = Field(min_length=1, description="What happened and why, 2 or 3 sentences")
    strategy: str | None = Field(
        None, description="What to do next time, 1 or 2 sentences; null if there is no rule in it"
    )
    importance: float = Field(0.5, description="0 to 1: how much a later run gains by knowing it")
    confidence: float = Field(0.5, description="0 to 1: how sure the trace makes you")
    tags: list[str] = Field(default_factory=list, description="2 to 6 short words to find it by")
    source_event_ids: list[str] = Field(
        default_factory=list,
        description="At most five event ids, the one most to blame or to thank first",
    )
    verdicts: list[BulletVerdict] = Field(
        default_factory=list[BulletVerdict],
        description="One verdict on each bullet that the run had; empty when it had none",
    )

    @field_validator("reflection", mode="before")
    @classmethod
    def _trimmed(cls, value: Any) -> Any:
        return value.strip() if isinstance(value, str) else value

    @field_validator("strategy", mode="before")
    @classmethod
    def _no_strategy(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return None if value.strip().casefold() in _NOTHING else value.strip()

    @field_validator("verdicts", mode="before")
    @classmethod
    def _verdicts(cls, value: Any) -> list[BulletVerdict]:
        return readable(BulletVerdict, value)

    @field_validator("importance", "confidence", mode="before")
    @classmethod
    def _unit(cls, value: Any) -> float:
        return as_unit(value)

    @field_validator("tags", mode="before")
    @classmethod
    def _tags(cls, value: Any) -> list[str]:
        tags = (item.strip(" #\"'")[:_TAG_LENGTH].strip() for item in as_list(value))
        return list(dict.fromkeys(tag for tag in tags if tag))[:MOST_TAGS]

    @field_validator("source_event_ids", mode="before")
    @classmethod
    def _sources(cls, value: Any) -> list[str]:
        return list(dict.fromkeys(item.strip(" []\"'") for item in as_list(value)))


def as_unit(value: Any) -> float:
    """A score from 0 to 1. Numbers are clamped; of a text the first number counts, as percent when
    it is more than 1 and at most 100; whatever else is .5.
    """
    if isinstance(value, str):
        found = _NUMBER.search(value)
        number = float(found.group()) if found else -1.0
        number = number / 100 if 1 < number <= 100 else number
        return number if 0 <= number <= 1 else 0.5
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return 0.5
    return min(1.0, max(0.0, float(value)))


def as_list(value: Any) -> list[str]:
    """Texts of a list, of a printed Python list, or of a text with commas."""
    if isinstance(value, str):
        return as_list(_printed(value))
    if isinstance(value, list | tuple):
        items = cast("Iterable[Any]", value)
        return [str(item) for item in items if isinstance(item, str | int | float)]
    return []


def _printed(text: str) -> list[Any]:
    if text.strip().startswith("["):
        try:
            value: Any = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = None
        if isinstance(value, list):
            return cast("list[Any]", value)
    return [part for part in re.split("[,、，]", text.strip(" []")) if part.strip()]
