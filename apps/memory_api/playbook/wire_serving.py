"""Searches and renders on the wire."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from apps.memory_api.core.schemas import Model, Name, Unit
from apps.memory_api.memory.schemas import Explained, SearchBody
from apps.memory_api.playbook.render import Form
from apps.memory_api.playbook.schemas import SearchResult
from apps.memory_api.playbook.serve import TOP_K
from apps.memory_api.playbook.wire import MAX_TOKENS, ProjectBody


class SearchIn(SearchBody):
    """Spec 2's query, and what the service adds to it."""

    min_confidence: Unit = 0.3


class Hit(SearchResult):
    explain: Explained | None = None


class BulletsFound(Model):
    results: list[Hit]
    version: int
    render_id: UUID


class RenderIn(ProjectBody):
    """What to put in a prompt: everything useful, or what fits a query."""

    query_text: str = Field("", max_length=10_000)
    token_budget: int | None = Field(None, ge=0, le=MAX_TOKENS)
    top_k: int = Field(TOP_K, ge=0, le=1000)
    section_filter: list[Name] | None = Field(None, max_length=64)
    format: Form = Field("prompt", description="ace: one `[id] helpful=… :: text` a line.")
    holdout: Unit | None = Field(
        None, description="Chance that a bullet drawn by lot is left out; null: the playbook's."
    )


class RenderAnswer(Model):
    """`text` is empty when there is nothing to say, or no room for it; `keys` are those in it.
    `held_out` is the bullet that the lot left out (`holdout`).
    """

    text: str
    keys: list[str]
    tokens: int
    version: int
    render_id: UUID
    left_out: int = Field(description="Bullets that did not fit the token budget.")
    held_out: str | None = None
