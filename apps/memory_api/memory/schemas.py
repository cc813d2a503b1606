"""Memories on the wire and in the making."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from pydantic import AliasChoices, Field

from apps.memory_api.core.openapi import shown
from apps.memory_api.core.schemas import (
    Metadata,
    Model,
    Name,
    PlaybookName,
    Tags,
    TenantBody,
    Time,
    Unit,
)

Fusion = Literal["anchored", "minmax", "rrf"]
RankBy = Literal["score", "usefulness"]
Explained = dict[str, float | int | str | None]
"""Both legs of a hit: `cosine`, `bm25`, their ranks, `usefulness`, and `why` it was found."""


class Layer(StrEnum):
    """Reflective, episodic, semantic. The documents' longer spellings are accepted."""

    REFLECTIVE = "rm"
    EPISODIC = "em"
    SEMANTIC = "sm"

    @classmethod
    def _missing_(cls, value: object) -> Layer | None:
        spelled = {"reflective": "rm", "episodic": "em", "semantic": "sm"}
        return cls(spelled[value]) if isinstance(value, str) and value in spelled else None


class Kind(StrEnum):
    REFLECTION = "reflection"
    STRATEGY = "strategy"
    INSIGHT = "insight"
    BULLET = "bullet"
    EVALUATION = "evaluation"
    EPISODE = "episode"
    CHUNK = "chunk"


class Status(StrEnum):
    """Only an active memory is served; a quarantined one waits for a person."""

    ACTIVE = "active"
    QUARANTINED = "quarantined"
    ARCHIVED = "archived"
    DELETED = "deleted"


LAYER_OF = {
    Kind.REFLECTION: Layer.REFLECTIVE,
    Kind.STRATEGY: Layer.REFLECTIVE,
    Kind.INSIGHT: Layer.REFLECTIVE,
    Kind.BULLET: Layer.REFLECTIVE,
    Kind.EVALUATION: Layer.REFLECTIVE,
    Kind.EPISODE: Layer.EPISODIC,
    Kind.CHUNK: Layer.SEMANTIC,
}


class NewMemory(TenantBody):
    """A memory somebody brings: no model is called."""

    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    kind: Kind = Kind.REFLECTION
    content: str = Field(min_length=1, max_length=100_000)
    title: Name | None = None
    when_to_use: str | None = Field(None, max_length=10_000)
    keywords: Tags = Field(default_factory=list)
    tags: Tags = Field(default_factory=list)
    importance: Unit = 0.5
    confidence: Unit | None = None
    source: Name = "api"
    session_id: Name | None = None
    trace_id: UUID | None = None
    metadata: Metadata = Field(default_factory=dict)
    reason: str | None = Field(None, max_length=2_000)


def _active() -> Literal["active", "quarantined", "archived"]:
    return "active"


class MemoryPatch(TenantBody):
    """What may be changed of a memory. Only the fields that are sent change, so no default is ever
    read; each change is a revision. `title` and `when_to_use` may be taken away with null.
    """

    content: str = Field(default_factory=str, min_length=1, max_length=100_000)
    title: Name | None = None
    when_to_use: str | None = Field(None, max_length=10_000)
    keywords: Tags = Field(default_factory=list)
    tags: Tags = Field(default_factory=list)
    importance: Unit = Field(default_factory=float)
    status: Literal["active", "quarantined", "archived"] = Field(default_factory=_active)
    pinned: bool = Field(default_factory=bool)
    reason: str | None = Field(None, max_length=2_000)


_MEMORY: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa05",
    "project_id": "default",
    "layer": "rm",
    "kind": "reflection",
    "key": None,
    "section": None,
    "title": None,
    "when_to_use": None,
    "content": "The refund failed because the order was still pending.",
    "keywords": [],
    "tags": ["refund"],
    "importance": 0.7,
    "strength": 1.0,
    "confidence": 0.8,
    "confidence_score": 0.5,
    "usefulness": 0.05,
    "helpful": 0,
    "harmful": 0,
    "neutral": 0,
    "witnesses": 1,
    "status": "active",
    "pinned": False,
    "source": "reflection_engine_v2",
    "error_category": "tool_error",
    "outcome": "failure",
    "session_id": None,
    "trace_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04",
    "source_event_ids": ["e0002"],
    "metadata": {"event_count": 3},
    "revision": 1,
    "created_at": "2026-11-21T09:00:00Z",
    "updated_at": "2026-11-21T09:00:00Z",
}


class MemoryView(Model):
    """A memory as it is shown."""

    model_config = shown(_MEMORY)

    id: UUID
    project_id: str
    layer: str
    kind: str
    key: str | None
    section: str | None
    title: str | None
    when_to_use: str | None
    content: str
    keywords: list[str]
    tags: list[str]
    importance: float
    strength: float
    confidence: float | None
    confidence_score: float
    usefulness: float
    helpful: int
    harmful: int
    neutral: int
    witnesses: int
    status: str
    pinned: bool
    source: str
    error_category: str | None
    outcome: str | None
    session_id: str | None
    trace_id: UUID | None
    source_event_ids: list[str]
    metadata: Metadata
    revision: int
    created_at: Time
    updated_at: Time


class MemoryStored(MemoryView):
    """A memory just written; `cleaned` when something in it could not be stored as it came."""

    model_config = shown(_MEMORY | {"cleaned": False})

    cleaned: bool = False


class RevisionView(Model):
    """A memory as it was after one change, and who changed it why."""

    model_config = shown(
        {
            "revision": 2,
            "content": "The refund failed because the order was still pending.",
            "title": None,
            "when_to_use": None,
            "section": None,
            "tags": ["refund"],
            "importance": 0.9,
            "status": "active",
            "pinned": False,
            "reason": "Seen three times this week.",
            "actor": "key:0190d2c4-6f5e-7a31-9c11-3a55d6f0aa02",
            "run_id": None,
            "created_at": "2026-11-21T09:30:00Z",
        }
    )

    revision: int
    content: str
    title: str | None
    when_to_use: str | None
    section: str | None
    tags: list[str]
    importance: float
    status: str
    pinned: bool
    reason: str | None
    actor: str | None
    run_id: UUID | None
    created_at: Time


class LinkView(Model):
    """`source` stands in `relation` to `target`. The memory asked for is one of the two."""

    model_config = shown(
        {
            "source_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa05",
            "relation": "derived_from",
            "target_kind": "trace",
            "target_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04",
            "created_at": "2026-11-21T09:00:00Z",
        }
    )

    source_id: UUID
    relation: str
    target_kind: str
    target_id: UUID
    created_at: Time


class SearchBody(TenantBody):
    """What every search takes. Lists mean any of; what is empty filters nothing."""

    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    query_text: str = Field(max_length=10_000)
    top_k: int = Field(10, ge=0, le=1000)
    kinds: list[Kind] = Field(default_factory=list, max_length=len(Kind))
    section_filter: list[Name] | None = Field(
        None,
        max_length=64,
        description="Sections in any spelling, or by slug; an unknown one finds nothing.",
    )
    tags: Tags = Field(default_factory=list)
    error_categories: Tags = Field(default_factory=list)
    status: Literal["active", "quarantined", "archived"] = Field(
        "active",
        description="What is set aside is read and scored by the query: slower, for a review.",
    )
    min_confidence: Unit = 0.0
    min_importance: Unit = 0.0
    since: Time | None = None
    until: Time | None = None
    fusion: Fusion = "anchored"
    alpha: Unit | None = Field(
        None, description="Weight of the vector score; the fusion's own default when unset."
    )
    rank_by: RankBy = Field(
        "score", description="usefulness: order by combined_score × (0.5 + usefulness)."
    )
    explain: bool = False


class SearchQuery(SearchBody):
    """A hybrid search over the memories of a project."""

    layers: list[Layer] = Field(default_factory=list, max_length=len(Layer))
    playbook: PlaybookName | None = Field(
        None, validation_alias=AliasChoices("playbook", "dataset")
    )


class SearchHit(Model):
    """One result. The scores are those used in the sum; `explain` holds the raw ones."""

    memory: MemoryView
    playbook: str | None = Field(None, description="The playbook that a bullet stands in.")
    vector_score: float
    bm25_score: float
    combined_score: float
    explain: Explained | None = None


class SearchAnswer(Model):
    results: list[SearchHit]
