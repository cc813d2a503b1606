"""Search and render of a playbook on the wire."""

from __future__ import annotations

from uuid import UUID

from pydantic import AliasChoices, Field

from memory_api.core.schemas import Name, ResponseModel, UnitFloat
from memory_api.memories.schemas import Match, ScoreExplanation, SearchRequest
from memory_api.playbooks.models import SearchResult
from memory_api.playbooks.retrieval.prompt_block import BulletFormat
from memory_api.playbooks.retrieval.retrieve import DEFAULT_TOP_K
from memory_api.playbooks.schemas import MAX_TOKENS, ProjectRequest


class SearchBulletsRequest(SearchRequest):
    """A search in the bullets of one playbook."""

    min_confidence: UnitFloat = Field(default=0.3, description="Lower limit of `confidence_score`.")


class BulletHit(SearchResult):
    """One result of a search in a playbook."""

    match: Match | None = Field(default=None, description="Null for an empty query.")
    explain: ScoreExplanation | None = Field(default=None, description="The parts of the scores.")


class SearchBulletsResponse(ResponseModel):
    """Bullets, best first."""

    results: list[BulletHit]
    version: int = Field(description="Version of the playbook.")
    retrieval_id: UUID = Field(description="ID of this search, for the trace of the agent.")


class RenderPlaybookRequest(ProjectRequest):
    """What to render: the best bullets for a query, or the most useful ones without a query."""

    query_text: str = Field(default="", max_length=10_000)
    token_budget: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TOKENS,
        description="Maximum size of the text in estimated tokens. Default: the playbook's.",
    )
    top_k: int = Field(
        default=DEFAULT_TOP_K, ge=0, le=1000, description="Maximum number of bullets."
    )
    sections: list[Name] | None = Field(
        default=None,
        max_length=64,
        validation_alias=AliasChoices("sections", "section_filter"),
        description="Names or slugs of sections. Default: all.",
    )
    min_match: Match = Field(
        default="none",
        description="For a playbook that does not fit the token budget, or has more than `top_k` "
        "bullets. `strong`: only bullets that fit the query well.",
    )
    format: BulletFormat = Field(
        default="prompt", description="`ace`: lines `[id] helpful=… harmful=… :: text`."
    )
    holdout_share: UnitFloat | None = Field(
        default=None,
        description="Probability that one random bullet is left out. Default: the playbook's. 0: "
        "the whole block is not withheld either.",
    )
    session_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="Session of the agent. If HANSEI_ADVICE_HOLDOUT_SHARE withholds the block, it "
        "does so in all renders of a session.",
    )

    include_trials: bool = Field(
        default=True,
        description="False leaves out trials: bullets that begin with `Try:`, which nobody has "
        "shown to work. Later runs confirm or replace them, so leave them out only where nothing "
        "is learned from the runs, or a mistake is expensive.",
    )


class RenderPlaybookResponse(ResponseModel):
    """A prompt block."""

    text: str = Field(
        description="Empty if no bullet fits, or the playbook has none or does not exist."
    )
    bullet_keys: list[str] = Field(description="Keys of the bullets in the text.")
    token_count: int = Field(description="Estimated size of the text.")
    version: int = Field(description="Version of the playbook.")
    retrieval_id: UUID = Field(description="ID of this render, for the trace of the agent.")
    left_out_count: int = Field(
        description="Number of bullets that did not fit the token budget or the query."
    )
    held_out: str | None = Field(default=None, description="Key of the randomly withheld bullet.")
    advice_held_out: bool = Field(
        default=False,
        description="True if the whole block was withheld at random, to measure its effect.",
    )
