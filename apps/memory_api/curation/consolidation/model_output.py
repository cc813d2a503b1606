"""The limits of what the model output of a consolidation may change.

The author of a trace may control what a model writes. So a model may only change bullets of one
group, each bullet once, and a change must not lose a number, a name or most of the words. It
deletes few bullets, and none that proved useful or that several tasks taught.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from memory_api.core.secret_redaction import redact
from memory_api.curation.consolidation.groups import BulletGroup
from memory_api.curation.content_checks import (
    MAX_BULLET_CHARACTERS,
    MIN_KNOWN_WORD_SHARE,
    find_content_problem,
)
from memory_api.curation.context import NearbyBullet
from memory_api.curation.model_output import (
    CuratorOperation,
    ModelCuration,
    check_merge,
    redacted_texts,
    reject_operation,
    to_delta,
)
from memory_api.curation.schemas import Decisions, ProposedChange, new_delta
from memory_api.text.quotations import has_address
from memory_api.text.similarity import containment

MAX_PARTS = 4
MAX_TASKS_OF_DELETED = 2
"""A bullet that more tasks taught is not deleted."""
MAX_DELETED_SHARE = 0.25
"""Share of the shown bullets that one consolidation may delete, 0 to 1; at least one bullet."""


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
    answer: ModelCuration, groups: Sequence[BulletGroup], evidence: ConsolidationEvidence
) -> Decisions:
    """The operations of an answer as proposed changes. KEEP and bullets without an operation stay
    as they are.
    """
    limits = _Limits(groups, evidence)
    validated = Decisions()
    for operation in answer.operations:
        if operation.type == "KEEP":
            continue
        if reason := limits.find_objection(operation):
            validated.rejected_lessons.append(reject_operation(operation, reason))
            continue
        limits.changed.update(operation.keys)
        limits.deleted_count += operation.type == "DELETE"
        if operation.type == "SPLIT":
            validated.changes += _split(operation, limits.bullets[operation.keys[0]])
        else:
            delta = to_delta(operation, redacted_texts(operation))
            validated.changes.append(ProposedChange(delta=delta, by_model=True))
    return validated


class _Limits:
    """What the operations of one answer may change."""

    def __init__(self, groups: Sequence[BulletGroup], evidence: ConsolidationEvidence) -> None:
        self.bullets = {n.bullet.id: n for group in groups for n in group.bullets}
        self.changed: set[str] = set()
        self.deleted_count = 0
        self._group_by_key = {n.bullet.id: i for i, g in enumerate(groups) for n in g.bullets}
        self._evidence = evidence

    def find_objection(self, operation: CuratorOperation) -> str | None:
        """The reason to reject an operation; None if it is accepted."""
        keys = operation.keys
        if operation.type in ("ADD", "REJECT"):
            return "A consolidation has no lessons."
        if operation.bullet_id is None or any(key not in self.bullets for key in keys):
            return "The bullet was not in the prompt."
        if self.changed & set(keys):
            return "Another operation changes the same bullet."
        if len({self._group_by_key[key] for key in keys}) > 1:
            return "The bullets are in different groups."
        before = max(len(self.bullets[key].bullet.content) for key in keys)
        if any(len(text) > max(MAX_BULLET_CHARACTERS, before) for text in operation.contents):
            return f"The content is longer than {MAX_BULLET_CHARACTERS} characters."
        if operation.type == "DELETE":
            return self._check_delete(keys[0])
        return self._check_words(operation) or self._check_type(operation)

    def _check_type(self, operation: CuratorOperation) -> str | None:
        keys = operation.keys
        if operation.type == "MERGE":
            if any(set(keys) <= rejected for rejected in self._evidence.rejected_merges):
                return "A person declined this merge, or a proposal with it is waiting."
            return check_merge(operation) or self._check_content(operation, operation.content or "")
        if operation.type == "UPDATE" and operation.content:
            return self._check_content(operation, operation.content)
        if operation.type == "UPDATE":
            return None if operation.when_to_use else "UPDATE requires `content` or `when_to_use`."
        return self._check_split(operation)

    def _check_words(self, operation: CuratorOperation) -> str | None:
        """The condition and the title, too, consist mostly of words of the bullets, and no text has
        an address if they have none.
        """
        bullets = [self.bullets[key].bullet for key in operation.keys]
        known = " ".join(f"{b.when_to_use} {b.title} {b.content}" for b in bullets)
        for texts in (operation, *operation.parts):
            for text in filter(None, (texts.when_to_use, texts.title)):
                if containment(text, known) < MIN_KNOWN_WORD_SHARE:
                    return "Most words of the condition or the title are not in the bullets."
            if not has_address(known) and any(
                has_address(text)
                for text in filter(None, (texts.when_to_use, texts.title, texts.content))
            ):
                return "The bullets have no address."
        return None

    def _check_content(self, operation: CuratorOperation, content: str) -> str | None:
        tools = {tool for key in operation.keys for tool in self._evidence.tools.get(key, ())}
        bullets = [self.bullets[key].bullet for key in operation.keys]
        return find_content_problem(content, bullets, operation.omitted, tools)

    def _check_split(self, operation: CuratorOperation) -> str | None:
        parts, bullet = operation.parts, self.bullets[operation.keys[0]].bullet
        if not 2 <= len(parts) <= MAX_PARTS:
            return f"SPLIT requires 2 to {MAX_PARTS} parts."
        if any(not part.content.strip() for part in parts):
            return "A part has no content."
        if any(containment(part.content, bullet.content) < MIN_KNOWN_WORD_SHARE for part in parts):
            return "Most words of a part are not in the bullet."
        return self._check_content(operation, " ".join(part.content for part in parts))

    def _check_delete(self, key: str) -> str | None:
        bullet = self.bullets[key].bullet
        if bullet.helpful > bullet.harmful or bullet.helpful == bullet.harmful > 0:
            return "The bullet has helpful verdicts."
        if self._evidence.task_counts.get(key, 0) > MAX_TASKS_OF_DELETED:
            return f"More than {MAX_TASKS_OF_DELETED} tasks taught the bullet."
        if self.deleted_count >= max(1, int(MAX_DELETED_SHARE * len(self.bullets))):
            return "One consolidation deletes at most a quarter of the bullets."
        return None


def _split(operation: CuratorOperation, target: NearbyBullet) -> list[ProposedChange]:
    """The first part replaces the texts of the bullet; each other part is a new bullet."""
    reasoning = redact(operation.reasoning).text
    first, *others = operation.parts
    fields = redacted_texts(first)
    update = new_delta("UPDATE", bullet_id=target.bullet.id, reasoning=reasoning, **fields)
    section, tags = target.bullet.section, target.bullet.tags or None
    return [
        ProposedChange(delta=update, by_model=True),
        *(
            ProposedChange(
                delta=new_delta(
                    "ADD", section=section, tags=tags, reasoning=reasoning, **redacted_texts(part)
                ),
                by_model=True,
                source_ids=[target.id],
                depends_on=target.bullet.id,
            )
            for part in others
        ),
    ]
