"""The model output of a consolidation, and the limits of what it may change.

The author of a trace may control what a model writes. So a model may only change bullets of one
cluster, each bullet once, and a change must not lose a number, a name or most of the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pydantic import BaseModel, Field, field_validator

from apps.memory_api.core.secret_redaction import redact
from apps.memory_api.curation.lesson_comparison import NearbyBullet
from apps.memory_api.curation.model_output import extract_key
from apps.memory_api.curation.rules import MAX_CONTENT_CHARACTERS
from apps.memory_api.curation.schemas import ProposedChange, RejectedLesson, new_delta
from apps.memory_api.playbooks.models import Bullet
from apps.memory_api.text.differences import find_difference, names_and_numbers
from apps.memory_api.text.similarity import containment

MAX_OPERATIONS = 48
MAX_PARTS = 4
MIN_KNOWN_WORD_SHARE = 0.5
"""Share of the words of a new content that the changed bullets contain, 0 to 1."""


class BulletPart(BaseModel):
    """One bullet of a SPLIT."""

    title: str | None = None
    when_to_use: str | None = None
    content: str


class ConsolidationOperation(BaseModel):
    """One operation on the bullets of a cluster."""

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

    @field_validator("parts", mode="before")
    @classmethod
    def _parts(cls, value: Any) -> Any:
        return [] if value is None else value

    @field_validator("reasoning", mode="before")
    @classmethod
    def _reason(cls, value: Any) -> Any:
        return "" if value is None else value


class ModelConsolidation(BaseModel):
    """How the clusters of a playbook are to change."""

    reasoning: str = Field("", description="Which bullets give the same advice")
    operations: list[ConsolidationOperation]

    @field_validator("operations", mode="before")
    @classmethod
    def _some(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return cast("list[Any]", value)[:MAX_OPERATIONS]


@dataclass
class ValidatedConsolidation:
    """The accepted and rejected operations."""

    changes: list[ProposedChange] = field(default_factory=list[ProposedChange])
    rejected: list[RejectedLesson] = field(default_factory=list[RejectedLesson])


def validate_consolidation(
    answer: ModelConsolidation, clusters: Sequence[Sequence[NearbyBullet]]
) -> ValidatedConsolidation:
    """The operations of an answer as proposed changes. KEEP and bullets without an operation stay
    as they are.
    """
    cluster_by_key = {n.bullet.id: i for i, cluster in enumerate(clusters) for n in cluster}
    bullets = {n.bullet.id: n for cluster in clusters for n in cluster}
    validated = ValidatedConsolidation()
    changed: set[str] = set()
    for operation in answer.operations:
        if operation.type == "KEEP":
            continue
        keys = list(dict.fromkeys(filter(None, [operation.bullet_id, *operation.source_ids])))
        reason = _find_objection(operation, keys, cluster_by_key, bullets, changed)
        if reason:
            delta = operation.model_dump(exclude_defaults=True)
            validated.rejected.append(RejectedLesson(reason=reason, delta=delta))
            continue
        changed.update(keys)
        validated.changes += _to_changes(operation, bullets)
    return validated


def _find_objection(
    operation: ConsolidationOperation,
    keys: Sequence[str],
    cluster_by_key: Mapping[str, int],
    bullets: Mapping[str, NearbyBullet],
    changed: set[str],
) -> str | None:
    """The reason to reject an operation; None if it is accepted."""
    if operation.bullet_id is None or any(key not in cluster_by_key for key in keys):
        return "The bullet was not in the prompt."
    if changed & set(keys):
        return "Another operation changes the same bullet."
    if len({cluster_by_key[key] for key in keys}) > 1:
        return "The bullets are in different clusters."
    texts = [operation.content or "", *(part.content for part in operation.parts)]
    if any(len(text) > MAX_CONTENT_CHARACTERS for text in texts):
        return f"The content is longer than {MAX_CONTENT_CHARACTERS:,} characters."
    concerned = [bullets[key].bullet for key in keys]
    if operation.type == "MERGE":
        return _check_merge(operation.content, concerned)
    if operation.type == "UPDATE" and operation.content:
        return _check_content(operation.content, concerned)
    if operation.type == "UPDATE":
        return None if operation.when_to_use else "UPDATE requires `content` or `when_to_use`."
    if operation.type == "SPLIT":
        return _check_split(operation.parts, concerned[0])
    return _check_delete(concerned[0])


def _check_merge(content: str | None, bullets: Sequence[Bullet]) -> str | None:
    if len(bullets) < 2:
        return "MERGE requires at least 2 different bullets."
    first, *others = bullets
    if any(find_difference(first.content, other.content) == "opposites" for other in others):
        return "The bullets contain antonyms."
    return _check_content(content or first.content, bullets)


def _check_content(content: str, bullets: Sequence[Bullet]) -> str | None:
    """A new content has every name and number of the bullets, and mostly their words."""
    names = names_and_numbers(content)
    lost = {name for bullet in bullets for name in names_and_numbers(bullet.content)} - names
    if lost:
        return f"The new content omits {', '.join(sorted(lost)[:5])}."
    old = " ".join(f"{bullet.when_to_use} {bullet.title} {bullet.content}" for bullet in bullets)
    if containment(content, old) < MIN_KNOWN_WORD_SHARE:
        return "Most words of the new content are not in the bullets."
    return None


def _check_split(parts: Sequence[BulletPart], bullet: Bullet) -> str | None:
    if not 2 <= len(parts) <= MAX_PARTS:
        return f"SPLIT requires 2 to {MAX_PARTS} parts."
    if any(not part.content.strip() for part in parts):
        return "A part has no content."
    if any(containment(part.content, bullet.content) < MIN_KNOWN_WORD_SHARE for part in parts):
        return "Most words of a part are not in the bullet."
    return _check_content(" ".join(part.content for part in parts), [bullet])


def _check_delete(bullet: Bullet) -> str | None:
    if bullet.helpful > bullet.harmful or bullet.helpful == bullet.harmful > 0:
        return "The bullet has helpful verdicts."
    return None


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
