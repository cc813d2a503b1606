"""What a search finds, read from the rows of `hansei_search` by the names of their columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from operator import itemgetter
from typing import Any
from uuid import UUID

import asyncpg

from apps.memory_api.memory.schemas import Explained


@dataclass(slots=True)
class FoundMemory:
    """A row of `memories` as search brings it, by the names of its columns."""

    id: UUID
    n: int
    scope: int
    project_id: str
    layer: str
    kind: str
    key: str | None
    section: str | None
    title: str | None
    when_to_use: str | None
    content: str
    searchable_text: str
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
    metadata_: dict[str, Any]
    terms: list[int]
    revision: int
    version: int | None
    place: int | None
    created_at: datetime
    updated_at: datetime

    def __post_init__(self) -> None:
        self.metadata_ = _read(self.metadata_)


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found. `vector_score` and `bm25_score` are the normalised scores of the sum; the
    rest explains them. Ranks are there when asked for (`explain`) and with `rrf`; None in a leg
    that did not find it.
    """

    memory: FoundMemory
    vector_score: float
    bm25_score: float
    combined_score: float
    cosine: float | None = None
    bm25: float | None = None
    dense_rank: int | None = None
    lexical_rank: int | None = None
    playbook: str | None = None
    """The playbook it stands in; None outside of one."""

    def explained(self) -> Explained:
        """Both legs as they were measured, and by which of them it was found."""
        legs = {"words": self.lexical_rank, "meaning": self.dense_rank}
        return {
            "cosine": self.cosine,
            "bm25": self.bm25,
            "dense_rank": self.dense_rank,
            "lexical_rank": self.lexical_rank,
            "usefulness": self.memory.usefulness,
            "why": " and ".join(leg for leg, rank in legs.items() if rank) or "usefulness",
        }


@dataclass(frozen=True, slots=True)
class Head:
    """A playbook as it was when it was searched."""

    scope: int
    version: int
    settings: dict[str, Any]
    """Its `sections`, `token_budget` and `holdout`."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search brings; `head` when it was asked for and there is such a playbook."""

    hits: list[Hit]
    head: Head | None = None


def found_in(rows: Sequence[asyncpg.Record]) -> Found:
    """The rows of `hansei_search`: a playbook's own comes first and is no memory."""
    if not rows or rows[0]["id"] is not None:
        return Found([_hit(row) for row in rows])
    scope, version, settings = _HEAD(rows[0])
    return Found([_hit(row) for row in rows[1:]], Head(scope, version, _read(settings)))


def _read(jsonb: Any) -> dict[str, Any]:
    """A column as the driver hands it over: text, unless a codec was set."""
    return json.loads(jsonb) if isinstance(jsonb, str) else jsonb


def _hit(row: asyncpg.Record) -> Hit:
    return Hit(FoundMemory(*_MEMORY(row)), *_SCORES(row))


_HEAD = itemgetter("scope", "version", "metadata")
_SCORES = itemgetter(*(field.name for field in fields(Hit) if field.name != "memory"))
_MEMORY = itemgetter(*(field.name.rstrip("_") for field in fields(FoundMemory)))
