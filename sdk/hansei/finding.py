"""What a search takes and finds, as type hints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from hansei.answers import Memory

Fusion = Literal["anchored", "minmax", "rrf"]


class Hit(TypedDict):
    """A memory found by `search`; the scores are those used in the sum."""

    memory: Memory
    playbook: str | None
    vector_score: float
    bm25_score: float
    combined_score: float
    explain: dict[str, float | int | str | None] | None


class Hits(TypedDict):
    results: list[Hit]


class SearchFields(TypedDict, total=False):
    """What every search takes."""

    project_id: str | None
    top_k: int | None
    kinds: Sequence[str] | None
    section_filter: Sequence[str] | None
    tags: Sequence[str] | None
    error_categories: Sequence[str] | None
    status: Literal["active", "quarantined", "archived"] | None
    min_confidence: float | None
    min_importance: float | None
    since: str | None
    until: str | None
    fusion: Fusion | None
    alpha: float | None
    rank_by: Literal["score", "usefulness"] | None
    explain: bool | None


class SearchOptions(SearchFields, total=False):
    layers: Sequence[str] | None
    playbook: str | None
