"""The model output of a consolidation, and the limits of what it may change.

The author of a trace may control what a model writes. So a model may only change bullets of one
group, each bullet once, and a change must not lose a number, a name or most of the words. It
deletes few bullets, and none that proved useful or that several tasks taught.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pydantic import BaseModel, Field, field_validator

from memory_api.core.secret_redaction import redact
from memory_api.curation.consolidation.groups import BulletGroup
from memory_api.curation.content_checks import (
    MAX_BULLET_CHARACTERS,
    MIN_KNOWN_WORD_SHARE,
    find_content_problem,
    find_long_contents,
)
from memory_api.curation.context import NearbyBullet
from memory_api.curation.model_output import extract_key
from memory_api.curation.schemas import ProposedChange, RejectedLesson, new_delta
from memory_api.playbooks.models import Bullet
from memory_api.text.similarity import containment

MAX_OPERATIONS = 48
MAX_PARTS = 4
MAX_TASKS_OF_DELETED = 2
"""A bullet that more tasks taught is not deleted."""
MAX_DELETED_SHARE = 0.25
"""Share of the shown bullets that one consolidation may delete, 0 to 1; at least one bullet."""


class BulletPart(BaseModel):
    """One bullet of a SPLIT."""

    title: str | None = None
    when_to_use: str | None = None
    content: str


class ConsolidationOperation(BaseModel):
    """One operation on the bullets of a group."""

    type: Literal["MERGE", "UPDATE", "SPLIT", "DELETE", "KEEP"]
    bullet_id: str | None = Field(
        None, description="The bullet to change; for MERGE the one that remains"
    )
    source_ids: list[str] = Field(
        default_factory=list, description="MERGE only: the bullets that go into bullet_id"
    )
    title: str | None = None
    when_to_use: str | None = None
    content: str | None = Field(
        None, description="The new advice, 1 to 3 sentences; null: as before"
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

    @field_validator("bullet_id", mode="before")
    @classmethod
    def _key(cls, value: Any) -> str | None:
        return extract_key(value)

    @field_validator("source_ids", mode="before")
    @classmethod
    def _keys(cls, value: Any) -> list[str]:
        values = cast("list[Any]", value) if isinstance(value, list) else [value]
        return [key for item in values if (key := extract_key(item))]

    @field_validator("omitted", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        return [str(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []

    @field_validator("parts", mode="before")
    @classmethod
    def _parts(cls, value: Any) -> Any:
        return [] if value is None else value

    @field_validator("reasoning", mode="before")
    @classmethod
    def _reason(cls, value: Any) -> Any:
        return "" if value is None else value


class ModelConsolidation(BaseModel):
    """How the bullets of a playbook are to change."""

    reasoning: str = Field("", description="Which bullets give the same advice")
    operations: list[ConsolidationOperation]

    @field_validator("operations", mode="before")
    @classmethod
    def _some(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return cast("list[Any]", value)[:MAX_OPERATIONS]


def find_long_operations(answer: ModelConsolidation) -> str:
    """What to ask for again because texts are too long; "" if none is."""
    return find_long_contents(
        text
        for operation in answer.operations
        for text in (operation.content, *(part.content for part in operation.parts))
    )


@dataclass
class ValidatedConsolidation:
    """The accepted and rejected operations."""

    changes: list[ProposedChange] = field(default_factory=list[ProposedChange])
    rejected: list[RejectedLesson] = field(default_factory=list[RejectedLesson])


@dataclass(frozen=True)
class ConsolidationEvidence:
    """What is known of the bullets, by key: the tools of the traces that taught them, and the
    number of tasks. `rejected_merges` are groups of keys that a person declined to merge, or that
    wait for review.
    """

    tools: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])
    task_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    rejected_merges: Collection[frozenset[str]] = ()


def validate_consolidation(
    answer: ModelConsolidation, groups: Sequence[BulletGroup], evidence: ConsolidationEvidence
) -> ValidatedConsolidation:
    """The operations of an answer as proposed changes. KEEP and bullets without an operation stay
    as they are.
    """
    limits = _Limits(groups, evidence)
    validated = ValidatedConsolidation()
    for operation in answer.operations:
        if operation.type == "KEEP":
            continue
        keys = list(dict.fromkeys(filter(None, [operation.bullet_id, *operation.source_ids])))
        if reason := limits.find_objection(operation, keys):
            delta = operation.model_dump(exclude_defaults=True)
            validated.rejected.append(RejectedLesson(reason=reason, delta=delta))
            continue
        limits.changed.update(keys)
        limits.deleted_count += operation.type == "DELETE"
        validated.changes += _to_changes(operation, limits.bullets)
    return validated


class _Limits:
    """What the operations of one answer may change."""

    def __init__(self, groups: Sequence[BulletGroup], evidence: ConsolidationEvidence) -> None:
        self.bullets = {n.bullet.id: n for group in groups for n in group.bullets}
        self.changed: set[str] = set()
        self.deleted_count = 0
        self._group_by_key = {n.bullet.id: i for i, g in enumerate(groups) for n in g.bullets}
        self._evidence = evidence

    def find_objection(self, operation: ConsolidationOperation, keys: Sequence[str]) -> str | None:
        """The reason to reject an operation on these bullets; None if it is accepted."""
        if operation.bullet_id is None or any(key not in self.bullets for key in keys):
            return "The bullet was not in the prompt."
        if self.changed & set(keys):
            return "Another operation changes the same bullet."
        if len({self._group_by_key[key] for key in keys}) > 1:
            return "The bullets are in different groups."
        texts = [operation.content or "", *(part.content for part in operation.parts)]
        before = max(len(self.bullets[key].bullet.content) for key in keys)
        if any(len(text) > max(MAX_BULLET_CHARACTERS, before) for text in texts):
            return f"The content is longer than {MAX_BULLET_CHARACTERS} characters."
        if operation.type == "MERGE":
            return self._check_merge(operation, keys)
        if operation.type == "UPDATE" and operation.content:
            return self._check_content(operation, operation.content, keys)
        if operation.type == "UPDATE":
            return None if operation.when_to_use else "UPDATE requires `content` or `when_to_use`."
        if operation.type == "SPLIT":
            return self._check_split(operation, keys)
        return self._check_delete(keys[0])

    def _check_merge(self, operation: ConsolidationOperation, keys: Sequence[str]) -> str | None:
        if len(keys) < 2:
            return "MERGE requires at least 2 different bullets."
        if any(set(keys) <= rejected for rejected in self._evidence.rejected_merges):
            return "A person declined this merge, or a proposal with it is waiting."
        if not operation.content:
            return "MERGE requires `content`."
        return self._check_content(operation, operation.content, keys)

    def _check_content(
        self, operation: ConsolidationOperation, content: str, keys: Sequence[str]
    ) -> str | None:
        tools = {tool for key in keys for tool in self._evidence.tools.get(key, ())}
        return find_content_problem(content, self._bullets_of(keys), operation.omitted, tools)

    def _check_split(self, operation: ConsolidationOperation, keys: Sequence[str]) -> str | None:
        parts, bullet = operation.parts, self._bullets_of(keys)[0]
        if not 2 <= len(parts) <= MAX_PARTS:
            return f"SPLIT requires 2 to {MAX_PARTS} parts."
        if any(not part.content.strip() for part in parts):
            return "A part has no content."
        if any(containment(part.content, bullet.content) < MIN_KNOWN_WORD_SHARE for part in parts):
            return "Most words of a part are not in the bullet."
        return self._check_content(operation, " ".join(part.content for part in parts), keys[:1])

    def _check_delete(self, key: str) -> str | None:
        bullet = self.bullets[key].bullet
        if bullet.helpful > bullet.harmful or bullet.helpful == bullet.harmful > 0:
            return "The bullet has helpful verdicts."
        if self._evidence.task_counts.get(key, 0) > MAX_TASKS_OF_DELETED:
            return f"More than {MAX_TASKS_OF_DELETED} tasks taught the bullet."
        if self.deleted_count >= max(1, int(MAX_DELETED_SHARE * len(self.bullets))):
            return "One consolidation deletes at most a quarter of the bullets."
        return None

    def _bullets_of(self, keys: Sequence[str]) -> list[Bullet]:
        return [self.bullets[key].bullet for key in keys]


def _to_changes(
    operation: ConsolidationOperation, bullets: Mapping[str, NearbyBullet]
) -> list[ProposedChange]:
    assert operation.bullet_id is not None
    target = bullets[operation.bullet_id]
    reasoning = redact(operation.reasoning).text
    if operation.type == "DELETE":
        delta = new_delta("DELETE", bullet_id=operation.bullet_id, reasoning=reasoning)
        return [ProposedChange(delta=delta, by_model=True)]
    if operation.type != "SPLIT":
        fields = _texts(operation.title, operation.when_to_use, operation.content)
        if operation.type == "MERGE":
            fields["source_ids"] = [s for s in operation.source_ids if s != operation.bullet_id]
        delta = new_delta(
            operation.type, bullet_id=operation.bullet_id, reasoning=reasoning, **fields
        )
        return [ProposedChange(delta=delta, by_model=True)]
    first, *others = operation.parts
    changes = [
        new_delta(
            "UPDATE",
            bullet_id=operation.bullet_id,
            reasoning=reasoning,
            **_texts(first.title, first.when_to_use, first.content),
        ),
        *(
            new_delta(
                "ADD",
                section=target.bullet.section,
                tags=target.bullet.tags or None,
                reasoning=reasoning,
                **_texts(part.title, part.when_to_use, part.content),
            )
            for part in others
        ),
    ]
    return [
        ProposedChange(
            delta=delta,
            by_model=True,
            source_ids=[target.id] if delta.type == "ADD" else [],
            depends_on=operation.bullet_id if delta.type == "ADD" else None,
        )
        for delta in changes
    ]


def _texts(title: str | None, when_to_use: str | None, content: str | None) -> dict[str, Any]:
    values = {"title": title, "when_to_use": when_to_use, "content": content}
    return {
        name: redact(value.strip()).text
        for name, value in values.items()
        if value and value.strip()
    }
