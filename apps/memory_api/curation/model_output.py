"""The model output of a curation or a consolidation, parsed leniently, and the limits of what a
curation may change.

The author of a trace may control what a model writes. So a model may only change bullets that were
in its prompt, every change except a merge must come from a lesson, and a bullet is not deleted
against its counters, rewritten into something else, or merged with a bullet of different content.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import BaseModel, Field, field_validator

from memory_api.core.secret_redaction import redact
from memory_api.curation.content_checks import (
    MAX_QUOTED,
    find_content_problem,
    find_long_contents,
    find_lost_words,
    may_confirm,
    names_and_numbers,
)
from memory_api.curation.context import CurationContext
from memory_api.curation.rules import MAX_CONTENT_CHARACTERS
from memory_api.curation.schemas import (
    Decisions,
    KnownLesson,
    Lesson,
    ProposedChange,
    RejectedLesson,
    new_delta,
)
from memory_api.playbooks.models import TRIAL, Bullet, DeltaContextItem, DeltaType
from memory_api.text.quotations import find_quotations_of, without_quotation_marks, words_of_name

MAX_OPERATIONS = 50
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,100}-\d{1,120}|kpt_\d{1,120}")


OperationType = Literal["ADD", "UPDATE", "MERGE", "SPLIT", "DELETE", "KEEP", "REJECT"]


class BulletPart(BaseModel):
    """One bullet of a SPLIT."""

    title: str | None = None
    when_to_use: str | None = None
    content: str


class CuratorOperation(BaseModel):
    """One operation in the model's output. A consolidation has no lessons, so it neither adds nor
    rejects; a curation does not split.
    """

    type: OperationType
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
    omitted: list[str] = Field(
        default_factory=list,
        description="Names and numbers that the new text leaves out because they are an example "
        "or belong to one task",
    )
    parts: list[BulletPart] = Field(
        default_factory=list[BulletPart], description="SPLIT only: the bullets it becomes, 2 to 4"
    )
    reasoning: str = Field("", description="The reason, in one sentence")

    @field_validator("type", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.strip().upper() if isinstance(value, str) else value

    @property
    def keys(self) -> list[str]:
        """The bullets that it changes."""
        return list(dict.fromkeys(filter(None, [self.bullet_id, *self.source_ids])))

    @property
    def contents(self) -> list[str]:
        """The texts that it writes."""
        return [self.content or "", *(part.content for part in self.parts)]

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

    @field_validator("omitted", mode="before")
    @classmethod
    def _names(cls, value: Any) -> list[str]:
        return [str(item) for item in _as_list(value)]

    @field_validator("parts", mode="before")
    @classmethod
    def _parts(cls, value: Any) -> Any:
        return [] if value is None else value

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

    reasoning: str = Field("", description="What is new, and which bullets give the same advice")
    operations: list[CuratorOperation]

    @field_validator("operations", mode="before")
    @classmethod
    def _some(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return cast("list[Any]", value)[:MAX_OPERATIONS]


def find_long_texts(answer: ModelCuration) -> str:
    """What to ask for again because texts are too long; "" if none is."""
    return find_long_contents(
        text for operation in answer.operations for text in operation.contents
    )


def find_problem(answer: ModelCuration, known: Mapping[str, Bullet]) -> str:
    """What to ask for again: texts that are too long, and updates that replace the advice of a
    bullet; "" if there is none. A text that stays too long is accepted, because its lessons would
    be lost: the next consolidation shows it as too long. An update that stays as it is is refused.
    """
    updates = [
        _check_update(operation, known.get(operation.bullet_id or ""))
        for operation in answer.operations
        if operation.type == "UPDATE"
    ]
    problems = [problem for problem in updates if problem]
    if problems:
        problems.append("Keep them, or ADD the lesson as a bullet of its own.")
    return " ".join(filter(None, [find_long_texts(answer), *problems]))


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def extract_key(value: Any) -> str | None:
    """`pat-00001` from `[pat-00001]`."""
    match = _KEY.search(value) if isinstance(value, str) else None
    return match.group() if match else None


def reject_operation(
    operation: CuratorOperation, reason: str, lessons: Sequence[int] = ()
) -> RejectedLesson:
    """The rejection of an operation that is not valid; another curation decides on its lessons."""
    delta = operation.model_dump(exclude_defaults=True)
    return RejectedLesson(reason=reason, lessons=list(lessons), delta=delta, retry=True)


def validate_operations(
    answer: ModelCuration,
    shown: Iterable[str],
    groups: Sequence[Sequence[int]],
    lessons: Sequence[Lesson],
    context: CurationContext,
) -> Decisions:
    """The operations of an answer as proposed changes. A lesson without a valid operation is not
    decided: the next curation decides on it.

    `groups` are the indexes of the lessons that the prompt numbers 1, 2, …; `shown` are the bullets
    that it shows completely. KEEP may also name a bullet of which it shows the title.
    """
    known = {key: context.state.bullets[key] for key in shown}
    validated = Decisions()
    accepted: list[tuple[CuratorOperation, list[int]]] = []
    for operation in answer.operations:
        numbers = dict.fromkeys(n for n in operation.lessons if 0 < n <= len(groups))
        lesson_indexes = [index for number in numbers for index in groups[number - 1]]
        if operation.type == "KEEP" and not operation.lessons:
            continue  # the bullet stays as it is
        if operation.type == "REJECT":
            validated.rejected_lessons.append(_reject(operation, lesson_indexes))
            continue
        nameable = context.titles.keys() | context.unconfirmed.keys()
        reason = _rejection_reason(operation, known, lesson_indexes, nameable)
        if operation.type == "KEEP" and not reason:
            waiting = context.unconfirmed.get(operation.bullet_id or "", "")
            reason = _check_confirmation(waiting, [lessons[index] for index in lesson_indexes])
        if reason:
            rejected = reject_operation(operation, reason, lesson_indexes)
            validated.rejected_lessons.append(rejected)
        elif operation.type == "KEEP":
            key = operation.bullet_id or ""
            reason = operation.reasoning or f"Matches bullet {key}."
            validated.known_lessons += [
                KnownLesson(lesson=number, key=key, reason=reason) for number in lesson_indexes
            ]
        else:
            accepted.append((operation, lesson_indexes))
    copied = _copied_passages([operation for operation, _ in accepted], context)
    validated.changes += [
        _to_proposed_change(operation, lesson_indexes, known, lessons, quotations)
        for (operation, lesson_indexes), quotations in zip(accepted, copied, strict=True)
    ]
    decided = {n for change in validated.changes for n in change.lessons}
    decided |= {known_lesson.lesson for known_lesson in validated.known_lessons}
    decided |= {n for rejected in validated.rejected_lessons for n in rejected.lessons}
    undecided = [number for group in groups for number in group if number not in decided]
    if undecided:
        reason = "The model gave no operation for this lesson."
        validated.rejected_lessons.append(
            RejectedLesson(reason=reason, lessons=undecided, retry=True)
        )
    return validated


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
    if operation.type == "SPLIT":
        return "Only a consolidation splits bullets."
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
    new = names_and_numbers(f"{when} {operation.content}")
    if lost := names_and_numbers(bullet.content) - new:
        return f"The new text omits {', '.join(sorted(lost)[:MAX_QUOTED])} of {bullet.id}."
    return find_lost_words(bullet, when, operation.content)


def _check_confirmation(waiting: str, lessons: Sequence[Lesson]) -> str | None:
    if waiting and not all(may_confirm(lesson.advice, waiting) for lesson in lessons):
        return "The lesson does not say what the waiting bullet says."
    return None


def _check_delete(bullet: Bullet | None) -> str | None:
    if bullet is None or bullet.harmful <= bullet.helpful:
        return "The bullet does not have more harmful than helpful verdicts."
    return None


def _check_merge(operation: CuratorOperation, known: Mapping[str, Bullet]) -> str | None:
    if any(key not in known for key in operation.keys):
        return "The bullet was not in the prompt."
    bullets = [known[key] for key in operation.keys]
    content = operation.content or ""
    if problem := check_merge(operation) or find_content_problem(content, bullets):
        return problem
    when = operation.when_to_use or bullets[0].when_to_use
    return next(filter(None, (find_lost_words(b, when, content) for b in bullets)), None)


def check_merge(operation: CuratorOperation) -> str | None:
    """What a MERGE lacks."""
    if len(operation.keys) < 2:
        return "MERGE requires at least 2 different bullets."
    return None if operation.content else "MERGE requires `content`."


def _copied_passages(
    operations: Sequence[CuratorOperation], context: CurationContext
) -> list[list[str]]:
    """The passages that each operation copies from outside text in the prompt: bullets that wait
    for confirmation, tasks, and names of tools in other words. Names in quotation marks are none.
    """
    tools = {name for evidence in context.evidence for name in evidence.tools}
    outside = [*context.unconfirmed.values(), *(e.task for e in context.evidence)]
    outside += [*tools, *map(words_of_name, tools)]
    texts: list[list[str]] = []
    for operation in operations:
        fields = (operation.content, operation.title, operation.when_to_use)
        plain = [without_quotation_marks(text) for text in fields if text]
        for name in sorted(tools, key=len, reverse=True):
            plain = [text.replace(name, " ") for text in plain]
        texts.append(plain)
    every = list(dict.fromkeys(text for plain in texts for text in plain))
    found = find_quotations_of(every, outside) if every and any(outside) else {}
    return [
        list(dict.fromkeys(passage for text in plain for passage in found.get(text, ())))
        for plain in texts
    ]


def _to_proposed_change(
    operation: CuratorOperation,
    lesson_indexes: Sequence[int],
    known: Mapping[str, Bullet],
    lessons: Sequence[Lesson],
    quotations: Sequence[str],
) -> ProposedChange:
    fields = redacted_texts(operation)
    if operation.type == "ADD":
        fields["section"] = operation.section or ""
        tags = [tag for number in lesson_indexes for tag in lessons[number].tags]
        fields |= {"tags": list(dict.fromkeys(tags))} if tags else {}
    contradicted = [key for key in known if key in operation.contradicts]
    return ProposedChange(
        delta=to_delta(operation, fields),
        lessons=list(lesson_indexes),
        contradicts=contradicted if operation.type == "ADD" else [],
        by_model=True,
        quotations=list(quotations),
    )


def to_delta(operation: CuratorOperation, fields: Mapping[str, Any]) -> DeltaContextItem:
    """The delta of an operation that is one: not SPLIT, KEEP or REJECT."""
    if operation.type != "ADD":
        fields = {"bullet_id": operation.bullet_id, **fields}
    if operation.type == "MERGE":
        others = [key for key in operation.source_ids if key != operation.bullet_id]
        fields = {"source_ids": others, **fields}
    if operation.type == "DELETE":
        fields = {"bullet_id": operation.bullet_id}
    reasoning = redact(operation.reasoning).text
    return new_delta(cast(DeltaType, operation.type), reasoning=reasoning, **fields)


def redacted_texts(texts: CuratorOperation | BulletPart) -> dict[str, Any]:
    """The new texts of a bullet, without those that stay."""
    values = {name: getattr(texts, name) for name in ("title", "when_to_use", "content")}
    return {
        name: redact(value.strip()).text
        for name, value in values.items()
        if value and value.strip()
    }
