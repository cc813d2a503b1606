"""What a model answers as a curator, read leniently, and how much of it is believed.

A model writes what the author of a trace made it write, at worst. So it may only touch bullets that
it was shown, every change must come from a lesson, and nothing that earned its place by evidence is
taken away, rewritten into something else, or fused with what it does not resemble.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel, Field, field_validator

from apps.memory_api.core.redaction import redact
from apps.memory_api.curator.duplicates import first_same
from apps.memory_api.curator.rules import LONGEST
from apps.memory_api.curator.schemas import Candidate, KeptLesson, LeftOut, Lesson, delta
from apps.memory_api.curator.view import View
from apps.memory_api.playbook.schemas import Bullet, DeltaType
from apps.memory_api.playbook.similar import contained, wording_similarity
from apps.memory_api.playbook.unlike import Difference, contradict, unlike

SUBSTANCE = 0.5
"""The share of a bullet's words that a rewriting of it must keep."""
ALIKE = 0.4
"""How alike in wording bullets must be for a model to fuse them."""
APART: frozenset[Difference | None] = frozenset(("numbers", "names", "opposites"))
"""What a model may not overlook when it fuses bullets."""
MOST_OPERATIONS = 50
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*-\d+|kpt_\d+")


class Operation(BaseModel):
    """One change as a model writes it."""

    type: DeltaType = Field(description="ADD, UPDATE, MERGE, DELETE or KEEP")
    lessons: list[int] = Field(default_factory=list, description="Numbers of the lessons behind it")
    bullet_id: str | None = Field(
        None, description="The bullet to change or keep; null for ADD; the survivor of a MERGE"
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
    reasoning: str = Field("", description="Why, in one sentence")

    @field_validator("type", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.strip().upper() if isinstance(value, str) else value

    @field_validator("lessons", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> list[int]:
        return [int(n) for item in _items(value) for n in re.findall(r"\d{1,4}", str(item))]

    @field_validator("source_ids", "contradicts", mode="before")
    @classmethod
    def _keys(cls, value: Any) -> list[str]:
        return [key for item in _items(value) if (key := _key(item))]

    @field_validator("bullet_id", mode="before")
    @classmethod
    def _one_key(cls, value: Any) -> str | None:
        return _key(value)

    @field_validator("section", "title", "when_to_use", "content", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return value.strip() or None if isinstance(value, str) else value

    @field_validator("reasoning", mode="before")
    @classmethod
    def _reason(cls, value: Any) -> Any:
        return "" if value is None else value


class CuratorAnswer(BaseModel):
    """How a playbook is to change."""

    reasoning: str = Field("", description="What is new in the lessons and what is not")
    operations: list[Operation]

    @field_validator("operations", mode="before")
    @classmethod
    def _some(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return cast("list[Any]", value)[:MOST_OPERATIONS]


def _items(value: Any) -> list[Any]:
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _key(value: Any) -> str | None:
    """`pat-00001` out of `[pat-00001]`."""
    found = _KEY.search(value) if isinstance(value, str) else None
    return found.group() if found else None


@dataclass(frozen=True)
class Believed:
    """What is left of an answer."""

    candidates: Sequence[Candidate]
    kept: Sequence[KeptLesson]
    dropped: Sequence[LeftOut]


def believe(
    answer: CuratorAnswer,
    shown: Iterable[str],
    asked: Sequence[int],
    lessons: Sequence[Lesson],
    view: View,
) -> Believed:
    """The answer's operations as candidates. `asked` are the indexes of the lessons that were put
    to the model as numbers 1, 2, …; a lesson that it says nothing about is left out for good.
    """
    known = {key: view.state.bullets[key] for key in shown}
    candidates: list[Candidate] = []
    kept: list[KeptLesson] = []
    dropped: list[LeftOut] = []
    for operation in answer.operations:
        numbers = list(dict.fromkeys(n for n in operation.lessons if 0 < n <= len(asked)))
        behind = [asked[n - 1] for n in numbers]
        reason = _objection(operation, known, behind)
        twin = None if reason else _twin(operation, known)
        key = operation.bullet_id if operation.type == "KEEP" else twin
        if reason:
            said = operation.model_dump(exclude_defaults=True)
            dropped.append(LeftOut(reason=reason, lessons=behind, delta=said))
        elif key is not None:
            why = operation.reasoning or f"{key} says it"
            kept += [KeptLesson(lesson=n, key=key, reason=why) for n in behind]
        else:
            candidates.append(_candidate(operation, behind, known, lessons))
    told = {n for c in candidates for n in c.lessons} | {k.lesson for k in kept}
    told |= {n for drop in dropped for n in drop.lessons}
    silent = [n for n in asked if n not in told]
    dropped += [
        LeftOut(reason="the model found nothing to keep of it", lessons=[n], remember=True)
        for n in silent
    ]
    return Believed(candidates, kept, dropped)


def _objection(
    operation: Operation, known: Mapping[str, Bullet], behind: Sequence[int]
) -> str | None:
    """Why an operation is not believed; None when it is."""
    target = known.get(operation.bullet_id or "")
    if not behind:
        return "it comes from no lesson"
    if len(operation.content or "") > LONGEST:
        return f"it is longer than {LONGEST} characters"
    if operation.type == "ADD":
        return None if operation.content else "an ADD needs a text"
    if target is None and (operation.type != "MERGE" or operation.bullet_id):
        return "the model was not shown this bullet"
    if operation.type == "DELETE":
        return _not_proved(target)
    if operation.type == "UPDATE":
        return _loses(operation.content, [target] if target else [])
    return _no_fusion(operation, known) if operation.type == "MERGE" else None


def _not_proved(bullet: Bullet | None) -> str | None:
    if bullet is None or bullet.harmful <= bullet.helpful:
        return "no evidence speaks against the bullet"
    return None


def _loses(content: str | None, bullets: Sequence[Bullet]) -> str | None:
    if content is None:
        return None
    lost = [b.id for b in bullets if contained(b.content, content) < SUBSTANCE]
    return f"it would make something else of {', '.join(lost)}" if lost else None


def _no_fusion(operation: Operation, known: Mapping[str, Bullet]) -> str | None:
    keys = list(dict.fromkeys(filter(None, [operation.bullet_id, *operation.source_ids])))
    if len(keys) < 2:
        return "a MERGE needs two different bullets or more"
    if any(key not in known for key in keys):
        return "the model was not shown this bullet"
    first, *others = (known[key] for key in keys)
    if any(wording_similarity(first.content, other.content) < ALIKE for other in others):
        return "the bullets are too different to be one"
    if any(unlike(first.content, other.content) in APART for other in others):
        return "the bullets differ in a number, a name or an opposite"
    return _loses(operation.content, [first])


def _twin(operation: Operation, known: Mapping[str, Bullet]) -> str | None:
    """The bullet that says what an ADD says."""
    if operation.type != "ADD" or not operation.content:
        return None
    return first_same(operation.content, {key: b.content for key, b in known.items()})


def _candidate(
    operation: Operation,
    behind: Sequence[int],
    known: Mapping[str, Bullet],
    lessons: Sequence[Lesson],
) -> Candidate:
    tags = [tag for n in behind for tag in lessons[n].tags]
    fields: dict[str, Any] = {
        "section": operation.section or "",
        "bullet_id": None if operation.type == "ADD" else operation.bullet_id,
        "source_ids": operation.source_ids if operation.type == "MERGE" else [],
        "reasoning": redact(operation.reasoning).text,
    }
    for name in ("content", "title", "when_to_use"):
        said = getattr(operation, name)
        if said is not None and operation.type != "DELETE":
            fields[name] = redact(said).text
    if operation.type == "ADD" and tags:
        fields["tags"] = list(dict.fromkeys(tags))
    text = operation.content or ""
    against = [
        key
        for key, bullet in known.items()
        if key in operation.contradicts or contradict(text, bullet.content)
    ]
    return Candidate(
        delta=delta(operation.type, **fields),
        lessons=list(behind),
        contradicts=against if operation.type == "ADD" else [],
        by_model=True,
    )
