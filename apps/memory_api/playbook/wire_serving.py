"""Searches and renders on the wire."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from apps.memory_api.core.schemas import Model, Name, Tags, Unit
from apps.memory_api.memory.find import Hit as FoundHit
from apps.memory_api.memory.find import RankBy
from apps.memory_api.playbook.schemas import SearchResult
from apps.memory_api.playbook.serve import MIN_CONFIDENCE, Form, Fusion
from apps.memory_api.playbook.wire import MAX_TOKENS, ProjectBody


class SearchIn(ProjectBody):
    """Spec 2's query, and what the service adds to it."""

    query_text: str = Field(max_length=10_000)
    top_k: int = Field(10, ge=0, le=1000)
    section_filter: list[Name] | None = Field(None, max_length=64)
    tags: Tags = Field(default_factory=list)
    min_confidence: Unit = MIN_CONFIDENCE
    alpha: Unit | None = Field(None, description="Weight of the vector score.")
    fusion: Fusion = "anchored"
    rank_by: RankBy = Field(
        "score", description="usefulness: the score times (.5 + the bullet's usefulness)."
    )
    explain: bool = False


class Hit(SearchResult):
    explain: dict[str, float | int | str | None] | None = None


def explained(hit: FoundHit) -> dict[str, float | int | str | None]:
    """Both legs as they were measured, and by which of them the bullet was found."""
    words, meaning = bool(hit.bm25), (hit.cosine or 0) > 0
    legs = {(True, True): "words and meaning", (True, False): "words", (False, True): "meaning"}
    return {
        "cosine": hit.cosine,
        "bm25": hit.bm25,
        "dense_rank": hit.dense_rank,
        "lexical_rank": hit.lexical_rank,
        "usefulness": hit.memory.usefulness,
        "why": legs.get((words, meaning), "usefulness"),
    }


class BulletsFound(Model):
    results: list[Hit]
    version: int
    render_id: UUID


class RenderIn(ProjectBody):
    """What to put in a prompt: everything useful, or what fits a query."""

    query_text: str = Field("", max_length=10_000)
    token_budget: int | None = Field(None, ge=0, le=MAX_TOKENS)
    top_k: int = Field(100, ge=0, le=1000)
    section_filter: list[Name] | None = Field(None, max_length=64)
    format: Form = Field("prompt", description="ace: one `[id] helpful=… :: text` a line.")
    holdout: Unit | None = Field(
        None, description="Chance that a bullet drawn by lot is left out; null: the playbook's."
    )


class RenderAnswer(Model):
    """`text` is empty when there is nothing to say; `keys` are those in it. `held_out` is the
    bullet that the lot left out (`holdout`).
    """

    text: str
    keys: list[str]
    tokens: int
    version: int
    render_id: UUID
    held_out: str | None = None
