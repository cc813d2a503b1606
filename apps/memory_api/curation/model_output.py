"""The curator's model output, parsed leniently, and the limits of what it may change.

The author of a trace may control what a model writes. So a model may only change bullets that were
in its prompt, every change except a merge must come from a lesson, and a bullet is not deleted
against its counters, rewritten into something else, or merged with a bullet of different content.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import BaseModel, Field, field_validator

from memory_api.core.secret_redaction import redact
from memory_api.curation.content_checks import (
    MAX_QUOTED,
    TRIAL,
    find_content_problem,
    find_long_contents,
    names_and_numbers,
)
from memory_api.curation.context import CurationContext
from memory_api.curation.rules import MAX_CONTENT_CHARACTERS
from memory_api.curation.schemas import (
    KnownLesson,
    Lesson,
    ProposedChange,
    RejectedLesson,
    new_delta,
)
from memory_api.playbooks.models import Bullet
from memory_api.text.quotations import find_quotations_of
from memory_api.text.similarity import containment

MIN_KEPT_WORD_SHARE = 0.5
"""The share of a bullet's words that an UPDATE must keep, 0 to 1. Vectors do not tell rewording
from other advice: cosines of 0.45 to 0.80 for rewordings, up to 0.83 for different bullets of one
playbook (bundled embedder).
"""
MAX_OPERATIONS = 50
_QUOTATION_MARKS = re.compile("[`'\"“”‘’„«»]")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,100}-\d{1,120}|kpt_\d{1,120}")


OperationType = Literal["ADD", "UPDATE", "MERGE", "DELETE", "KEEP", "REJECT"]


class CuratorOperation(BaseModel):
    """One operation in the model's output."""

    type: OperationType = Field(description="ADD, UPDATE, MERGE, DELETE, KEEP or REJECT")
    lessons: list[int] = Field(
        default_factory=list,
        description="Numbers of the lessons behind it; empty only for MERGE of existing bullets",
    )
    bullet_id: str | None = Field(
        None, description="The bullet to change; for MERGE the one that remains; null for ADD"
    )
    source_ids: list[str] = Field(
        default_factory=list, description="MERGE only: the bullets that go into bullet_id"
    )
    section: str | None = Field(None, description="ADD only: one of the section names")
    title: str | None = Field(None, description="A few words")
    when_to_use: str | None = Field(None, description="The situation in which the advice holds")
    content: str | None = Field(None, description="The advice itself, 1 to 3 sentences")
    contradicts: list[str] = Field(
        default_factory=list, description="Bullets that advise the contrary"
    )
    reasoning: str = Field("", description="The reason, in one sentence")

    @field_validator("type", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.strip().upper() if isinstance(value, str) else value

    @field_validator("lessons", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> list[int]:
        return [
            int(number) for item in _as_list(value) for number in re.findall(r"\d{1,4}", str(item))
        ]

    @field_validator("source_ids", "contradicts", mode="before")
    @classmethod
    def _keys(cls, value: Any) -> list[str]:
        return [key for item in _as_list(value) if (key := extract_key(item))]

    @field_validator("bullet_id", mode="before")
    @classmethod
    def _one_key(cls, value: Any) -> str | None:
        return extract_key(value)

    @field_validator("section", "title", "when_to_use", "content", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return value.strip() or None if isinstance(value, str) else value

    @field_validator("reasoning", mode="before")
    @classmethod
    def _reason(cls, value: Any) -> Any:
        return "" if value is None else value


class ModelCuration(BaseModel):
    """How a playbook is to change."""

    reasoning: str = Field("", description="What is new in the lessons and what is not")
    operations: list[CuratorOperation]

    @field_validator("operations", mode="before")
    @classmethod
    def _some(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return cast("list[Any]", value)[:MAX_OPERATIONS]


def find_problem(answer: ModelCuration, known: Mapping[str, Bullet]) -> str:
    """What to ask for again: texts that are too long, and updates that replace the advice of a
    bullet; "" if there is none. A text that stays too long is accepted, because its lessons would
    be lost: the next consolidation shows it as too long. An update that stays as it is is refused.
    """
    long = find_long_contents(operation.content for operation in answer.operations)
    updates = [
        _check_update(operation, known.get(operation.bullet_id or ""))
        for operation in answer.operations
        if operation.type == "UPDATE"
    ]
    problems = [problem for problem in updates if problem]
    if problems:
        problems.append("Keep them, or ADD the lesson as a bullet of its own.")
    return " ".join(filter(None, [long, *problems]))


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def extract_key(value: Any) -> str | None:
    """`pat-00001` from `[pat-00001]`."""
    match = _KEY.search(value) if isinstance(value, str) else None
    return match.group() if match else None


@dataclass(frozen=True)
class ValidatedOperations:
    """The accepted and rejected parts of an answer."""

    changes: Sequence[ProposedChange]
    known_lessons: Sequence[KnownLesson]
    rejected_lessons: Sequence[RejectedLesson]


def validate_operations(
    answer: ModelCuration,
    shown: Iterable[str],
    groups: Sequence[Sequence[int]],
    lessons: Sequence[Lesson],
    context: CurationContext,
) -> ValidatedOperations:
    """The operations of an answer as proposed changes. A lesson without a valid operation is not
    decided: the next curation decides on it.

    `groups` are the indexes of the lessons that the prompt numbers 1, 2, …; `shown` are the bullets
    that it shows completely. KEEP may also name a bullet of which it shows the title.
    """
    known = {key: context.state.bullets[key] for key in shown}
    changes: list[ProposedChange] = []
    known_lessons: list[KnownLesson] = []
    rejected_lessons: list[RejectedLesson] = []
    for operation in answer.operations:
        numbers = dict.fromkeys(n for n in operation.lessons if 0 < n <= len(groups))
        lesson_indexes = [index for number in numbers for index in groups[number - 1]]
        if operation.type == "KEEP" and not operation.lessons:
            continue  # the bullet stays as it is
        if operation.type == "REJECT":
            rejected_lessons.append(_reject(operation, lesson_indexes))
            continue
        nameable = context.titles.keys() | context.unconfirmed.keys()
        reason = _rejection_reason(operation, known, lesson_indexes, nameable)
        if reason:
            delta = operation.model_dump(exclude_defaults=True)
            rejected_lessons.append(
                RejectedLesson(reason=reason, lessons=lesson_indexes, delta=delta, retry=True)
            )
        elif operation.type == "KEEP":
            key = operation.bullet_id or ""
            reason = operation.reasoning or f"Matches bullet {key}."
            known_lessons += [
                KnownLesson(lesson=number, key=key, reason=reason) for number in lesson_indexes
            ]
        else:
            change = _to_proposed_change(operation, lesson_indexes, known, lessons)
            quotations = _quotations_of_unconfirmed(operation, context)
            changes.append(change.model_copy(update={"quotations": quotations}))
    decided = {number for c in changes for number in c.lessons} | {k.lesson for k in known_lessons}
    decided |= {number for rejected in rejected_lessons for number in rejected.lessons}
    undecided = [number for group in groups for number in group if number not in decided]
    if undecided:
        reason = "The model gave no operation for this lesson."
        rejected_lessons.append(RejectedLesson(reason=reason, lessons=undecided, retry=True))
    return ValidatedOperations(changes, known_lessons, rejected_lessons)


def _reject(operation: CuratorOperation, lesson_indexes: Sequence[int]) -> RejectedLesson:
    reason = redact(operation.reasoning).text.strip() or "The model rejected this lesson."
    return RejectedLesson(reason=reason, lessons=list(lesson_indexes), remember=True)


def _rejection_reason(
    operation: CuratorOperation,
    known: Mapping[str, Bullet],
    lesson_indexes: Sequence[int],
    titles: Collection[str],
) -> str | None:
    """The reason to reject an operation; None if it is accepted."""
    target = known.get(operation.bullet_id or "")
    if not lesson_indexes and (operation.type != "MERGE" or operation.lessons):
        return "The operation names no lesson."
    if len(operation.content or "") > MAX_CONTENT_CHARACTERS:
        return f"The content is longer than {MAX_CONTENT_CHARACTERS:,} characters."
    if operation.type == "ADD":
        return None if operation.content else "ADD requires `content`."
    if operation.type == "KEEP" and operation.bullet_id in titles:
        return None
    if target is None and (operation.type != "MERGE" or operation.bullet_id):
        return "The bullet was not in the prompt."
    if operation.type == "DELETE":
        return _check_delete(target)
    if operation.type == "UPDATE":
        return _check_update(operation, target)
    return _check_merge(operation, known) if operation.type == "MERGE" else None


def _check_update(operation: CuratorOperation, bullet: Bullet | None) -> str | None:
    """An update adds to the advice of a bullet, and does not replace it by other advice, except a
    trial.
    """
    if bullet is None or operation.content is None or bullet.content.startswith(TRIAL):
        return None
    when = operation.when_to_use or bullet.when_to_use
    old, new = f"{bullet.when_to_use} {bullet.content}", f"{when} {operation.content}"
    if lost := names_and_numbers(bullet.content) - names_and_numbers(new):
        return f"The new text omits {', '.join(sorted(lost)[:MAX_QUOTED])} of {bullet.id}."
    if containment(old, new) < MIN_KEPT_WORD_SHARE:
        return f"The new text drops most words of {bullet.id}."
    return None


def _check_delete(bullet: Bullet | None) -> str | None:
    if bullet is None or bullet.harmful <= bullet.helpful:
        return "The bullet does not have more harmful than helpful verdicts."
    return None


def _check_merge(operation: CuratorOperation, known: Mapping[str, Bullet]) -> str | None:
    keys = list(dict.fromkeys(filter(None, [operation.bullet_id, *operation.source_ids])))
    if len(keys) < 2:
        return "MERGE requires at least 2 different bullets."
    if any(key not in known for key in keys):
        return "The bullet was not in the prompt."
    if not operation.content:
        return "MERGE requires `content`."
    return find_content_problem(operation.content, [known[key] for key in keys])


def _quotations_of_unconfirmed(operation: CuratorOperation, context: CurationContext) -> list[str]:
    """The passages that an operation copies from bullets that wait for confirmation. Names in
    quotation marks are none.
    """
    texts = [operation.content, operation.title, operation.when_to_use]
    plain = [_QUOTATION_MARKS.sub("", text) for text in texts if text]
    waiting = list(context.unconfirmed.values())
    found = find_quotations_of(plain, waiting) if waiting else {}
    return list(dict.fromkeys(passage for passages in found.values() for passage in passages))


def _to_proposed_change(
    operation: CuratorOperation,
    lesson_indexes: Sequence[int],
    known: Mapping[str, Bullet],
    lessons: Sequence[Lesson],
) -> ProposedChange:
    tags = [tag for number in lesson_indexes for tag in lessons[number].tags]
    fields: dict[str, Any] = {
        "section": operation.section or "",
        "bullet_id": None if operation.type == "ADD" else operation.bullet_id,
        "source_ids": operation.source_ids if operation.type == "MERGE" else [],
        "reasoning": redact(operation.reasoning).text,
    }
    for name in ("content", "title", "when_to_use"):
        value = getattr(operation, name)
        if value is not None and operation.type != "DELETE":
            fields[name] = redact(value).text
    if operation.type == "ADD" and tags:
        fields["tags"] = list(dict.fromkeys(tags))
    assert operation.type != "REJECT", "handled before: it changes no bullet"
    contradicted = [key for key in known if key in operation.contradicts]
    return ProposedChange(
        delta=new_delta(operation.type, **fields),
        lessons=list(lesson_indexes),
        contradicts=contradicted if operation.type == "ADD" else [],
        by_model=True,
    )
