"""Types of the curator: lessons, curation plans, and the results of applying them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from memory_api.core.schemas import Page, ResponseModel, UnitFloat, UtcDatetime, with_examples
from memory_api.llm.errors import LLMError
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.models import DeltaContextItem, DeltaResult, DeltaType
from memory_api.playbooks.tables import InboxLessonRow, PlaybookRow
from memory_api.text.quotations import QUOTATIONS

LessonDecision = Literal[
    "added", "updated", "merged", "already_known", "waiting", "proposed", "rejected"
]


class Lesson(ResponseModel):
    """A strategy or insight on its way to a playbook. `section` is a preference; `memory_id` is the
    stored strategy or insight, `trace_id` its trace.
    """

    text: str
    when_to_use: str = ""
    title: str = ""
    section: str = ""
    memory_id: UUID | None = None
    kind: str = "strategy"
    trace_id: UUID | None = None
    importance: UnitFloat = 0.5
    confidence: UnitFloat = 0.5
    tags: list[str] = Field(default_factory=list)
    outcome: str | None = None
    """The effective outcome of the trace that first taught the lesson."""
    observation_count: int = 1
    """The number of traces that taught the lesson."""
    remedy: str | None = None
    """Whether a run showed that the advice works (`shown`), or nobody tried it (`inferred`)."""
    quotations: list[str] = Field(default_factory=list)
    """Passages of outside text that the lesson quotes."""
    awaiting_confirmation: bool = False
    """Whether the lesson repeats outside text that only one trace contained."""

    @property
    def advice(self) -> str:
        return f"{self.when_to_use} {self.text}"

    @property
    def unconfirmed_quotations(self) -> list[str]:
        return self.quotations if self.awaiting_confirmation else []


class CuratedLesson(ResponseModel):
    """The decision of the curator on one lesson."""

    model_config = ResponseModel.model_config | with_examples(
        {
            "memory_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa03",
            "text": "The user wanted the report of March.",
            "decision": "rejected",
            "key": None,
            "reason": "No action follows from it for a later run.",
            "run_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa02",
            "decided_at": "2026-11-21T09:03:00Z",
        }
    )

    memory_id: UUID | None = Field(description="The strategy or insight.")
    text: str | None = Field(description="Its text; null if it was erased.")
    decision: LessonDecision
    key: str | None = Field(description="The bullet with this lesson, if any.")
    reason: str | None = Field(description="The reason of the decision.")
    run_id: UUID | None = Field(description="The run that stored the decision.")
    decided_at: UtcDatetime


class CuratedLessonPage(Page[CuratedLesson]):
    """One page of decisions, the last first."""


def new_delta(kind: DeltaType, **fields: Any) -> DeltaContextItem:
    return DeltaContextItem.model_validate({"type": kind, **fields})


class ProposedChange(ResponseModel):
    """One proposed change, its lessons (by index), and the keys of bullets that it contradicts.
    `by_model` if a model wrote it.
    """

    delta: DeltaContextItem
    lessons: list[int] = Field(default_factory=list)
    contradicts: list[str] = Field(default_factory=list)
    by_model: bool = False
    quotations: list[str] = Field(default_factory=list)
    """Passages that a model copied from outside text in its prompt."""
    source_ids: list[UUID] = Field(default_factory=list[UUID])
    """Memories that the change was derived from, in addition to its lessons."""
    depends_on: str | None = None
    """Key of a bullet that the change splits. The change is dropped if that bullet changed."""


class KnownLesson(ResponseModel):
    """A lesson that matches a bullet: one more observation. `waits` if it would change the bullet
    and needs a second independent trace: then it is decided again.
    """

    lesson: int
    key: str
    reason: str = ""
    waits: bool = False


class RejectedLesson(ResponseModel):
    """A rejected change and its reason. `remember` if the rejection is permanent, `retry` if the
    lessons are not decided and another curation decides on them.
    """

    reason: str
    lessons: list[int] = Field(default_factory=list)
    delta: dict[str, Any] | None = None
    remember: bool = False
    retry: bool = False


@dataclass
class Decisions:
    """Decisions on lessons: changes of the playbook, lessons that a bullet has, and rejections."""

    changes: list[ProposedChange] = field(default_factory=list[ProposedChange])
    known_lessons: list[KnownLesson] = field(default_factory=list[KnownLesson])
    rejected_lessons: list[RejectedLesson] = field(default_factory=list[RejectedLesson])

    @property
    def deltas(self) -> list[DeltaContextItem]:
        return [change.delta for change in self.changes]


class CurationPlan(ResponseModel):
    """The decisions on lessons, computed for one version of a playbook. `apply_plan` applies it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    version: int = 0
    lessons: list[Lesson] = Field(default_factory=list[Lesson])
    changes: list[ProposedChange] = Field(default_factory=list[ProposedChange])
    known_lessons: list[KnownLesson] = Field(default_factory=list[KnownLesson])
    rejected_lessons: list[RejectedLesson] = Field(default_factory=list[RejectedLesson])
    final_lessons: list[int] = Field(default_factory=list)
    """Lessons that no further curation decides on: without a decision they are rejected."""
    engine: Literal["rules", "llm"] = "rules"
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None
    failure: LLMError | None = Field(default=None, exclude=True)
    """The error of the model that the rules replace; not passed to other processes."""

    @property
    def deltas(self) -> list[DeltaContextItem]:
        return [change.delta for change in self.changes]


def sources_of(
    changes: Sequence[ProposedChange], lessons: Sequence[Lesson]
) -> dict[int, list[UUID]]:
    """Index of a change → IDs of the memories of its lessons."""
    sources: dict[int, list[UUID]] = {}
    for index, change in enumerate(changes):
        ids = [*(lessons[index].memory_id for index in change.lessons), *change.source_ids]
        if memory_ids := list(
            dict.fromkeys(memory_id for memory_id in ids if memory_id is not None)
        ):
            sources[index] = memory_ids
    return sources


@dataclass(frozen=True)
class RecordedDecision:
    """The decision on one lesson (by index), and the key of its bullet, if any."""

    lesson: int
    decision: LessonDecision
    key: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class ApplyResult:
    """The result of applying a plan. With `proposal_id`, the deltas wait for review and `results`
    are what they would change. `decisions` are those that the decision log contains.
    """

    version: int
    changed: bool
    results: Sequence[DeltaResult] = ()
    known_lessons: Sequence[KnownLesson] = ()
    rejected_lessons: Sequence[RejectedLesson] = ()
    proposal_id: UUID | None = None
    quarantined_keys: Sequence[str] = ()
    archived_keys: Sequence[str] = ()
    changes: Sequence[ProposedChange] = ()
    """The applied or proposed changes, parallel to `results`."""
    decisions: Sequence[RecordedDecision] = ()
    lessons: Sequence[Lesson] = ()

    @classmethod
    def of_deleted_playbook(cls, plan: CurationPlan) -> ApplyResult:
        """All lessons rejected: learning does not restore a playbook."""
        numbers = list(range(len(plan.lessons)))
        rejected = RejectedLesson(reason="The playbook is deleted.", lessons=numbers)
        return cls(plan.version, False, rejected_lessons=[rejected], lessons=plan.lessons)

    def to_json(self) -> dict[str, Any]:
        actions = [result.action for result in self.results]
        return {
            "version": self.version,
            "added_count": actions.count("added"),
            "updated_count": actions.count("updated"),
            "merged_count": actions.count("merged"),
            "deleted_count": actions.count("deleted"),
            "known_count": len(self.known_lessons),
            "keys": [result.key for result in self.results if result.key],
            "rejected_reasons": [rejected.reason for rejected in self.rejected_lessons],
            "quarantined_keys": list(self.quarantined_keys),
            "archived_keys": list(self.archived_keys),
            "proposal_id": str(self.proposal_id) if self.proposal_id else None,
        }

    def returned_lessons(self) -> dict[int, str]:
        """Index of each lesson that is not decided → the reason."""
        decided = {index for change in self.changes for index in change.lessons}
        decided |= {known.lesson for known in self.known_lessons}
        decided |= {n for rejected in self.rejected_lessons if not rejected.retry
                    for n in rejected.lessons}  # fmt: skip
        return {
            index: rejected.reason
            for rejected in self.rejected_lessons
            for index in rejected.lessons
            if rejected.retry and index not in decided
        }

    def bullet_changes(self) -> list[dict[str, Any]]:
        """The change of each bullet: `{action, key, content, reason, trace_ids}`; `kept` without
        content; empty while the deltas wait for review.
        """
        if self.proposal_id is not None:
            return []
        changes = [
            {
                "action": result.action,
                "key": result.key,
                "content": _content(result),
                "reason": result.reason,
                "trace_ids": _trace_ids(self.lessons, change.lessons),
            }
            for result, change in zip(self.results, self.changes, strict=True)
        ]
        kept = [
            {
                "action": "kept",
                "key": known.key,
                "content": "",
                "reason": known.reason,
                "trace_ids": _trace_ids(self.lessons, [known.lesson]),
            }
            for known in self.known_lessons
        ]
        return [*changes, *kept]

    def lesson_results(self) -> list[dict[str, Any]]:
        """The decision on each lesson: `{memory_id, trace_id, decision, key, reason}`. `waiting`
        lessons are in the inbox again.
        """
        by_lesson: dict[int, tuple[str, str | None, str]] = {}
        for rejected in self.rejected_lessons:
            by_lesson |= dict.fromkeys(rejected.lessons, ("rejected", None, rejected.reason))
        returned = self.returned_lessons()
        by_lesson |= {n: ("waiting", None, reason) for n, reason in returned.items()}
        by_lesson |= {
            index: ("updated", change.delta.bullet_id, change.delta.reasoning)
            for change in self.changes
            for index in change.lessons
            if not self.lessons[index].text
        }
        by_lesson |= {d.lesson: (d.decision, d.key, d.reason) for d in self.decisions}
        return [
            {
                "memory_id": str(lesson.memory_id) if lesson.memory_id else None,
                "trace_id": str(lesson.trace_id) if lesson.trace_id else None,
                "decision": by_lesson[index][0] if index in by_lesson else None,
                "key": by_lesson[index][1] if index in by_lesson else None,
                "reason": by_lesson[index][2] if index in by_lesson else "",
            }
            for index, lesson in enumerate(self.lessons)
        ]


def _trace_ids(lessons: Sequence[Lesson], indexes: Sequence[int]) -> list[str]:
    ids = (lessons[index].trace_id for index in indexes)
    return list(dict.fromkeys(str(id_) for id_ in ids if id_ is not None))


def _content(result: DeltaResult) -> str:
    bullet = result.after or result.before
    return bullet.content if bullet else ""


LESSON_KINDS = (MemoryKind.STRATEGY, MemoryKind.INSIGHT)
"""The kinds of memories that can become bullets; a reflection only reports."""
_PLAIN_TAGS = frozenset(("strategy", "insight"))


def lesson_from_inbox(row: InboxLessonRow, memory: MemoryRow | None) -> Lesson | None:
    """The lesson of an inbox row; None if its memory was deleted, or is no lesson."""
    if memory is None or memory.kind not in LESSON_KINDS or memory.status == MemoryStatus.DELETED:
        return None
    return _lesson(memory).model_copy(update={"trace_id": row.trace_id or memory.trace_id})


def is_newer_than_deletion(row: InboxLessonRow, playbook: PlaybookRow) -> bool:
    """Whether the playbook exists, or the lesson arrived after it was deleted."""
    return playbook.deleted_at is None or row.created_at > playbook.deleted_at


def _lesson(row: MemoryRow) -> Lesson:
    metadata: dict[str, Any] = row.metadata_
    return Lesson(
        text=row.content,
        when_to_use=row.when_to_use or "",
        title=row.title or "",
        section=row.section or "",
        memory_id=row.id,
        kind=row.kind,
        trace_id=row.trace_id,
        importance=row.importance,
        confidence=0.5 if row.confidence is None else row.confidence,
        tags=[tag for tag in row.tags if tag not in _PLAIN_TAGS],
        outcome=row.outcome,
        observation_count=row.observation_count,
        remedy=metadata.get("remedy"),
        awaiting_confirmation=row.awaiting_confirmation,
        quotations=[str(text) for text in metadata.get(QUOTATIONS) or ()],
    )
