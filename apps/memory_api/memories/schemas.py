"""Memories on the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AliasChoices, Field
from typing_extensions import TypeAliasType

from memory_api.core.schemas import (
    Metadata,
    Name,
    NotBlank,
    Page,
    PlaybookField,
    ProjectId,
    ResponseModel,
    RowMetadata,
    Tags,
    TenantRequest,
    UnitFloat,
    UtcDatetime,
    Words,
    with_examples,
)

Fusion = TypeAliasType(
    "Fusion",
    Annotated[
        Literal["anchored", "minmax", "rrf"],
        Field(description="How a search combines the BM25 score and the cosine similarity."),
    ],
)
RankBy = TypeAliasType(
    "RankBy",
    Annotated[
        Literal["score", "usefulness"],
        Field(description="Whether results are ordered by relevance or by usefulness."),
    ],
)
Match = TypeAliasType(
    "Match",
    Annotated[
        Literal["strong", "weak", "none"],
        Field(description="How well it fits the query. `none`: it has little to do with it."),
    ],
)
SettableStatus = TypeAliasType(
    "SettableStatus",
    Annotated[
        Literal["active", "quarantined", "archived"],
        Field(
            description="Only active memories are found by searches. A quarantined memory waits "
            "for the decision of a person; an archived one is out of use."
        ),
    ],
)
ScoreExplanation = dict[str, float | int | str | None]
"""The parts of a score: `cosine`, `bm25`, their ranks, `usefulness`, and `why` it was found."""


class MemoryLayer(StrEnum):
    """Reflective, episodic or semantic memory. The long names are accepted too."""

    REFLECTIVE = "rm"
    EPISODIC = "em"
    SEMANTIC = "sm"

    @classmethod
    def _missing_(cls, value: object) -> MemoryLayer | None:
        spelled = {"reflective": "rm", "episodic": "em", "semantic": "sm"}
        return cls(spelled[value]) if isinstance(value, str) and value in spelled else None


class MemoryKind(StrEnum):
    REFLECTION = "reflection"
    STRATEGY = "strategy"
    INSIGHT = "insight"
    BULLET = "bullet"
    VERDICT = "verdict"
    EPISODE = "episode"
    CHUNK = "chunk"


class MemoryStatus(StrEnum):
    """Only active memories are indexed. A quarantined one waits for a person."""

    ACTIVE = "active"
    QUARANTINED = "quarantined"
    ARCHIVED = "archived"
    DELETED = "deleted"


LAYER_BY_KIND = {
    MemoryKind.REFLECTION: MemoryLayer.REFLECTIVE,
    MemoryKind.STRATEGY: MemoryLayer.REFLECTIVE,
    MemoryKind.INSIGHT: MemoryLayer.REFLECTIVE,
    MemoryKind.BULLET: MemoryLayer.REFLECTIVE,
    MemoryKind.VERDICT: MemoryLayer.REFLECTIVE,
    MemoryKind.EPISODE: MemoryLayer.EPISODIC,
    MemoryKind.CHUNK: MemoryLayer.SEMANTIC,
}


class CreateMemoryRequest(TenantRequest):
    """A memory that the client wrote."""

    project_id: ProjectId = None
    kind: MemoryKind = MemoryKind.REFLECTION
    content: Annotated[str, NotBlank] = Field(min_length=1, max_length=100_000)
    title: Name | None = None
    when_to_use: str | None = Field(
        default=None, max_length=10_000, description="The condition under which the memory applies."
    )
    keywords: Words = Field(default_factory=list, description="Extra words that searches find.")
    tags: Tags = Field(default_factory=list)
    importance: UnitFloat = Field(default=0.5, description="How much the memory matters, 0 to 1.")
    confidence: UnitFloat | None = Field(
        default=None, description="How certain its author is, 0 to 1."
    )
    source: Name = Field(default="api", description="Where the memory comes from.")
    session_id: Name | None = None
    trace_id: UUID | None = Field(default=None, description="The trace that it was learned from.")
    metadata: Metadata = Field(default_factory=dict)
    reason: str | None = Field(
        default=None, max_length=2_000, description="Why it is stored; part of the revision."
    )


def _active() -> SettableStatus:
    return "active"


class UpdateMemoryRequest(TenantRequest):
    """Changes of a memory. Only the fields that are sent change. Null removes `title` or
    `when_to_use`.
    """

    content: Annotated[str, NotBlank] = Field(default_factory=str, min_length=1, max_length=100_000)
    title: Name | None = None
    when_to_use: str | None = Field(default=None, max_length=10_000)
    keywords: Words = Field(default_factory=list)
    tags: Tags = Field(default_factory=list)
    importance: UnitFloat = Field(default_factory=float)
    status: SettableStatus = Field(default_factory=_active)
    pinned: bool = Field(default_factory=bool)
    reason: str | None = Field(default=None, max_length=2_000)


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
    "confidence": 0.8,
    "confidence_score": 0.5,
    "usefulness": 0.05,
    "helpful": 0,
    "harmful": 0,
    "neutral": 0,
    "observation_count": 1,
    "status": "active",
    "pinned": False,
    "awaiting_confirmation": False,
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


class Memory(ResponseModel):
    """A stored memory."""

    model_config = with_examples(_MEMORY)

    id: UUID
    project_id: str
    layer: str = Field(description="`rm` (reflective), `em` (episodic) or `sm` (semantic).")
    kind: str
    key: str | None = Field(description="The key of a bullet, such as `mis-00001`.")
    section: str | None = Field(description="The section of a bullet.")
    title: str | None
    when_to_use: str | None
    content: str
    keywords: list[str]
    tags: list[str]
    importance: float = Field(description="How much the memory matters, 0 to 1.")
    confidence: float | None = Field(description="How certain its author is, 0 to 1.")
    confidence_score: float = Field(
        description="helpful / (helpful + harmful), 0 to 1; 0.5 without verdicts."
    )
    usefulness: float = Field(
        description="5th percentile of Beta(1 + helpful, 1 + harmful), 0 to 1."
    )
    helpful: int
    harmful: int
    neutral: int
    observation_count: int = Field(description="Number of traces that taught this lesson.")
    status: str = Field(description="`active`, `quarantined` or `archived`.")
    pinned: bool = Field(description="True if learning may not change it.")
    awaiting_confirmation: bool = Field(
        default=False,
        description="True if it is quarantined because one trace taught it, and it quotes text of "
        "a tool or a user, or contradicts a bullet. A second independent trace or a person "
        "activates it.",
    )
    source: str
    error_category: str | None
    outcome: str | None
    session_id: str | None
    trace_id: UUID | None
    source_event_ids: list[str] = Field(description="Events of the trace that it rests on.")
    metadata: RowMetadata
    revision: int
    created_at: UtcDatetime
    updated_at: UtcDatetime


class StoredMemory(Memory):
    """A memory after a write."""

    sanitized: bool = Field(
        default=False, description="True if unstorable characters or secrets were replaced."
    )


class MemoryPage(Page[Memory]):
    """One page of memories, newest first."""


class MemoryRevision(ResponseModel):
    """The state of a memory after one change, with the author and the reason of the change."""

    model_config = with_examples(
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
    reason: str | None = Field(validation_alias=AliasChoices("change_reason", "reason"))
    actor: str | None = Field(
        validation_alias=AliasChoices("change_actor", "actor"),
        description="`key:` and the ID of an API key, or `run`.",
    )
    run_id: UUID | None = Field(
        validation_alias=AliasChoices("change_run_id", "run_id"),
        description="The run that made the change.",
    )
    created_at: UtcDatetime


class MemoryRevisionPage(Page[MemoryRevision]):
    """One page of the revisions of a memory, oldest first."""


class MemoryLink(ResponseModel):
    """A relation from a memory (`source`) to another memory or a trace (`target`)."""

    model_config = with_examples(
        {
            "source_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa05",
            "relation": "derived_from",
            "target_kind": "trace",
            "target_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04",
            "created_at": "2026-11-21T09:00:00Z",
        }
    )

    source_id: UUID
    relation: str = Field(description="Such as `derived_from` or `supports`.")
    target_kind: str = Field(description="`memory` or `trace`.")
    target_id: UUID
    created_at: UtcDatetime


class MemoryLinkPage(Page[MemoryLink]):
    """One page of the links of a memory, oldest first."""


class SearchRequest(TenantRequest):
    """Parameters of every search. A list means any of its values; an empty list does not filter."""

    project_id: ProjectId = None
    query_text: str = Field(max_length=10_000, description="Empty: order by usefulness.")
    top_k: int = Field(default=10, ge=0, le=1000, description="Maximum number of results.")
    kinds: list[MemoryKind] = Field(default_factory=list, max_length=len(MemoryKind))
    section_filter: list[Name] | None = Field(
        default=None,
        max_length=64,
        validation_alias=AliasChoices("section_filter", "sections"),
        description="Names or slugs of sections, in any case. An unknown section has no results.",
    )
    tags: Tags = Field(default_factory=list)
    error_categories: Words = Field(default_factory=list)
    status: SettableStatus = Field(
        default="active",
        description="Memories that are not active have no index; searching them is slower.",
    )
    min_confidence: UnitFloat = Field(default=0.0, description="Lower limit of `confidence_score`.")
    min_importance: UnitFloat = Field(default=0.0, description="Lower limit of `importance`.")
    since: UtcDatetime | None = None
    until: UtcDatetime | None = None
    fusion: Fusion = Field(
        default="anchored", description="How the vector and full-text scores are combined."
    )
    alpha: UnitFloat | None = Field(
        default=None, description="Weight of the vector score, 0 to 1. Default: that of the fusion."
    )
    rank_by: RankBy = Field(
        default="score", description="`usefulness` orders by combined_score × (0.5 + usefulness)."
    )
    min_match: Match = Field(default="none", description="Only results that fit as well.")
    explain: bool = Field(default=False, description="Add the parts of each score to the results.")


class SearchMemoriesRequest(SearchRequest):
    """A hybrid search over the memories of a project."""

    layers: list[MemoryLayer] = Field(default_factory=list, max_length=len(MemoryLayer))
    playbook: PlaybookField = None
    related: bool = Field(
        default=False,
        description="Add, in `related`, at most `top_k` memories that mention the same tools, "
        "errors, files or libraries as the best results, or are in a cluster with them.",
    )


class MemoryHit(ResponseModel):
    """One result of a search. `combined_score` combines the two others. All are 0 to 1."""

    memory: Memory
    playbook: str | None = Field(default=None, description="The playbook of a bullet.")
    vector_score: float
    bm25_score: float
    combined_score: float
    match: Match | None = Field(default=None, description="Null for an empty query.")
    explain: ScoreExplanation | None = None


class RelatedMemory(ResponseModel):
    """A memory that the query did not find, related to results."""

    memory: Memory
    weight: float = Field(description="Strength of the relation; rare entities count more.")
    related_to: list[UUID] = Field(description="The results that it is related to.")
    via: list[str] = Field(description="Common entities, such as `tool:refund`, or `cluster`.")


class SearchMemoriesResponse(ResponseModel):
    """Results of a search, best first."""

    results: list[MemoryHit]
    related: list[RelatedMemory] = Field(
        default_factory=list, description="With `related: true`: related memories, best first."
    )
