"""The model's answer about several runs, and what of it belongs to each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic.json_schema import SkipJsonSchema

from memory_api.reflection.model_output import (
    MAX_RULES,
    ModelReflection,
    ReflectionRule,
    reflection_class,
    valid_items,
)
from memory_api.reflection.schemas import CauseKind
from memory_api.traces.schemas import OutcomeType

MAX_BATCH_RULES = 8


class BatchRule(ReflectionRule):
    """A rule and the names of the runs that support it."""

    # Docstrings are not part of the schema that the model gets; the prompt describes the fields.

    runs: list[str] = Field(default_factory=list)

    @field_validator("runs", mode="before")
    @classmethod
    def _clean_names(cls, value: Any) -> list[str]:
        items = cast("list[Any]", value) if isinstance(value, list) else str(value or "").split(",")
        names = [item.strip(" []\"'").upper() for item in items if isinstance(item, str)]
        return list(dict.fromkeys(name for name in names if name))


class NamedRun(BaseModel):
    """The name of a run in the prompt: R1, R2, …"""

    run: str

    @field_validator("run", mode="before")
    @classmethod
    def _clean(cls, value: Any) -> Any:
        return value.strip(" []\"'").upper() if isinstance(value, str) else value


class RunReflection(ModelReflection, NamedRun):
    """One run as a model explains it. Its rules are those of the batch."""

    rules: SkipJsonSchema[list[ReflectionRule]] = Field(default_factory=list[ReflectionRule])
    second_cause_kind: SkipJsonSchema[CauseKind | None] = None


class BatchReflection(BaseModel):
    """The answer about all runs of a batch. An invalid item does not affect the others."""

    runs: list[RunReflection] = Field(min_length=1)
    rules: list[BatchRule] = Field(default_factory=list[BatchRule])

    @field_validator("runs", mode="before")
    @classmethod
    def _valid_runs(cls, value: Any) -> list[RunReflection]:
        return valid_items(RunReflection, value)

    @field_validator("rules", mode="before")
    @classmethod
    def _valid_rules(cls, value: Any) -> list[BatchRule]:
        return valid_items(BatchRule, value)[:MAX_BATCH_RULES]


def reflections_by_run(
    answer: BatchReflection, outcomes: Mapping[str, OutcomeType], rules: Sequence[BatchRule]
) -> dict[str, ModelReflection]:
    """The reflection on each run that the model explained exactly once, by its name, with the rules
    that it supports. A cause that a run with this outcome cannot have is unknown. A run without an
    explanation is missing: the model is asked about it alone.
    """
    reflections: dict[str, ModelReflection] = {}
    names = [item.run for item in answer.runs]
    for item in answer.runs:
        outcome = outcomes.get(item.run)
        if outcome is None or names.count(item.run) > 1 or item.missing_text():
            continue
        supported = [rule for rule in rules if item.run in rule.runs][:MAX_RULES]
        fields = item.model_dump(exclude={"run"}) | {
            "rules": [rule.model_dump(exclude={"runs"}) for rule in supported]
        }
        cls = reflection_class(outcome)
        try:
            reflections[item.run] = cls.model_validate(fields)
        except ValidationError:
            reflections[item.run] = cls.model_validate(fields | {"cause_kind": "unknown"})
    return reflections
