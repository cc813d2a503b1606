"""The curator's own words: lessons in, a curation out, and what merging it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from apps.memory_api.core.schemas import Model, Unit
from apps.memory_api.llm.errors import LLMError
from apps.memory_api.playbook.schemas import DeltaContextItem, DeltaResult, DeltaType

Decided = Literal["added", "updated", "merged", "kept", "held", "left_out"]


class HintIn(Model):
    """What a run says about a bullet that it used: `revise` its condition, or `weaken` it (its
    counters say that already, so nothing is proposed).
    """

    key: str
    action: Literal["revise", "weaken"]
    when_to_use: str | None = None
    reason: str = ""
    trace_id: UUID | None = None


class Lesson(Model):
    """Something learnt, on its way into a playbook. `section` is a wish; `memory_id` is the insight
    or strategy it was written down as, `trace_id` the run it comes from.
    """

    text: str
    when_to_use: str = ""
    title: str = ""
    section: str = ""
    memory_id: UUID | None = None
    kind: str = "strategy"
    trace_id: UUID | None = None
    hints: list[HintIn] = Field(default_factory=list[HintIn])
    importance: Unit = 0.5
    confidence: Unit = 0.5
    language: str = "en"
    tags: list[str] = Field(default_factory=list)


def delta(kind: DeltaType, **fields: Any) -> DeltaContextItem:
    """A delta of this kind."""
    return DeltaContextItem.model_validate({"type": kind, **fields})


class Candidate(Model):
    """One change that somebody wants, the lessons it comes from (by index), and the keys of bullets
    that it contradicts. `by_model` when a model wrote it.
    """

    delta: DeltaContextItem
    lessons: list[int] = Field(default_factory=list)
    contradicts: list[str] = Field(default_factory=list)
    by_model: bool = False


class KeptLesson(Model):
    """A lesson that a bullet says already: one witness more."""

    lesson: int
    key: str
    reason: str = ""


class LeftOut(Model):
    """What came to nothing, and why. `remember` when it would come to nothing again."""

    reason: str
    lessons: list[int] = Field(default_factory=list)
    delta: dict[str, Any] | None = None
    remember: bool = False


class Curation(Model):
    """What is to be done with lessons, thought out against one version of a playbook. Nothing is
    changed by it: `merge` does that.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    version: int = 0
    lessons: list[Lesson] = Field(default_factory=list[Lesson])
    candidates: list[Candidate] = Field(default_factory=list[Candidate])
    kept: list[KeptLesson] = Field(default_factory=list[KeptLesson])
    dropped: list[LeftOut] = Field(default_factory=list[LeftOut])
    engine: Literal["rules", "llm"] = "rules"
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None
    failure: LLMError | None = Field(default=None, exclude=True)
    """Why rules stand in for the model; not carried to another process."""

    @property
    def degraded(self) -> bool:
        return self.failure is not None

    @property
    def deltas(self) -> list[DeltaContextItem]:
        return [candidate.delta for candidate in self.candidates]

    @property
    def sources(self) -> dict[int, list[UUID]]:
        """Index of a delta → the memories (insights, strategies) that it was derived from."""
        return sources_of(self.candidates, self.lessons)


def sources_of(candidates: Sequence[Candidate], lessons: Sequence[Lesson]) -> dict[int, list[UUID]]:
    """Index of a candidate → the memories its lessons were written down as."""
    found: dict[int, list[UUID]] = {}
    for index, candidate in enumerate(candidates):
        ids = [lessons[n].memory_id for n in candidate.lessons]
        if known := list(dict.fromkeys(one for one in ids if one is not None)):
            found[index] = known
    return found


@dataclass(frozen=True)
class Merged:
    """What merging did. `proposal_id` when the deltas wait for a person; `results` are then what
    they would do.
    """

    version: int
    changed: bool
    results: Sequence[DeltaResult] = ()
    kept: Sequence[KeptLesson] = ()
    dropped: Sequence[LeftOut] = ()
    proposal_id: UUID | None = None
    quarantined: Sequence[str] = ()
    retired: Sequence[str] = ()

    def summary(self) -> dict[str, Any]:
        """As a run's result shows it."""
        actions = [result.action for result in self.results]
        return {
            "version": self.version,
            "added": actions.count("added"),
            "updated": actions.count("updated"),
            "merged": actions.count("merged"),
            "deleted": actions.count("deleted"),
            "kept": len(self.kept),
            "keys": [result.key for result in self.results if result.key],
            "dropped": [left.reason for left in self.dropped],
            "quarantined": list(self.quarantined),
            "retired": list(self.retired),
            "proposal_id": str(self.proposal_id) if self.proposal_id else None,
        }

    def changes(self) -> list[dict[str, Any]]:
        """What became of single bullets: `{action, key, content, reason}`, `kept` ones without a
        content; nothing while deltas wait for a person.
        """
        if self.proposal_id is not None:
            return []
        done = [
            {"action": r.action, "key": r.key, "content": _content(r), "reason": r.reason}
            for r in self.results
        ]
        kept = [
            {"action": "kept", "key": k.key, "content": "", "reason": k.reason} for k in self.kept
        ]
        return [*done, *kept]


def _content(result: DeltaResult) -> str:
    bullet = result.after or result.before
    return bullet.content if bullet else ""


@dataclass(frozen=True)
class Tidied:
    """What a tidying did to one playbook."""

    merged: Sequence[tuple[str, str]] = field(default_factory=tuple[tuple[str, str], ...])
    """(survivor, absorbed)."""
    quarantined: Sequence[str] = ()
    retired: Sequence[str] = ()
    held: bool = False
    """Merges wait for a person."""
