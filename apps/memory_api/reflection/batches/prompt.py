"""The prompt with several short runs in it, and the model's answer. What all runs share is written
once: the instructions, the tools, the known lessons and the bullets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic.json_schema import SkipJsonSchema

from memory_api.core.secret_redaction import redact
from memory_api.llm.model_session import ModelSession
from memory_api.llm.prompts import (
    PromptMessages,
    content_hash,
    render_template,
    select_sections,
    split_cacheable_prefix,
)
from memory_api.llm.structured_output import schema_text
from memory_api.reflection.context import without_copies
from memory_api.reflection.evidence import Evidence, PromptBullet, PromptLesson
from memory_api.reflection.model_output import (
    MAX_RULES,
    ModelReflection,
    ReflectionRule,
    reflection_class,
    valid_items,
)
from memory_api.reflection.prompt import (
    PromptParts,
    bullet_lines,
    fenced_lines,
    lesson_lines,
    omitted_fields,
)
from memory_api.reflection.schemas import CauseKind
from memory_api.reflection.trace_text import tool_lines
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.facts import Fact
from memory_api.traces.schemas import OutcomeType

BATCH_PROMPT, RUN_PROMPT = "reflection/batch", "reflection/batch_run"
MAX_BATCH_RULES = 8
MAX_LESSONS = 12
"""Known lessons in the prompt of a batch."""
_SHARED_TOKENS = 1_500
"""What the lessons may take, and the bullets, and the tools, in estimated tokens."""


@dataclass(frozen=True)
class BatchMember:
    """A run of a batch: what is known of it and what a program found in it."""

    context: ReflectionContext
    evidence: Evidence
    facts: Sequence[Fact]


@dataclass(frozen=True)
class BatchPrompt:
    """`lessons` are the known lessons by their name in the prompt. `omit` has the fields of a
    reflection that have no meaning for this batch.
    """

    messages: PromptMessages
    lessons: dict[str, PromptLesson]
    omit: frozenset[str]
    hash: str


def name_of_run(number: int) -> str:
    """The name of the run with this index in a prompt."""
    return f"R{number + 1}"


def build_batch_prompt(model: ModelSession, members: Sequence[BatchMember]) -> BatchPrompt:
    batch, run = model.prompt(BATCH_PROMPT), model.prompt(RUN_PROMPT)
    budget = (model.prompt_tokens - 3 * _SHARED_TOKENS) // len(members)
    parts = [_parts_of(member, budget) for member in members]
    runs = [_render_run(run.text, name_of_run(n), part) for n, part in enumerate(parts)]
    known = {lesson.memory_id: lesson for m in members for lesson in m.evidence.lessons}
    lessons = without_copies(list(known.values()), MAX_LESSONS)
    bullets: dict[str, PromptBullet] = {b.key: b for m in members for b in m.evidence.bullets}
    tools = {tool.name: tool for m in members for tool in m.context.tools}
    named = {f"L{n}": lesson for n, lesson in enumerate(lessons, 1)}
    values = {
        "schema": schema_text(BatchReflection),
        "runs": "\n\n".join(runs),
        "unexplained": "yes" if any(part.is_unexplained for part in parts) else "",
        "focus": redact(next(filter(None, (m.evidence.focus for m in members)), "")).text,
        "tools": fenced_lines(tool_lines(list(tools.values())), "tools", _SHARED_TOKENS),
        "lessons": fenced_lines(lesson_lines(named), "lessons", _SHARED_TOKENS),
        "bullets": fenced_lines(
            "\n".join(bullet_lines(list(bullets.values())).values()), "bullets", _SHARED_TOKENS
        ),
    }
    messages = split_cacheable_prefix(batch.text, values)
    omit = omitted_fields(Evidence(lessons=lessons, bullets=list(bullets.values())))
    return BatchPrompt(messages, named, omit, content_hash(f"{batch.text}\n{run.text}"))


def _parts_of(member: BatchMember, budget: int) -> PromptParts:
    own = replace(member.evidence, lessons=())
    context = member.context.model_copy(update={"tools": []})
    return PromptParts(context, own, member.facts, budget)


def _render_run(template: str, name: str, parts: PromptParts) -> str:
    had = ", ".join(bullet.key for bullet in parts.evidence.bullets)
    values = parts.values() | {"run": name, "had_bullets": had}
    return render_template(select_sections(template, values), values).strip()


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
