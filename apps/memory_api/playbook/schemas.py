"""The playbook's own words (spec 2 "Data Models"): bullets, deltas, search.

This file imports nothing of ours, so that the pure parts built on it can be lifted out and used
alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    computed_field,
    field_validator,
    model_validator,
)

Count = Annotated[int, Field(ge=0)]
BulletStatus = Literal["active", "quarantined", "archived", "deleted"]
DeltaType = Literal["ADD", "UPDATE", "DELETE", "MERGE", "KEEP"]
DeltaAction = Literal["added", "updated", "merged", "deleted", "kept", "rejected"]
Vote = Literal["helpful", "harmful", "neutral"]
EXTENSIONS = ("neutral", "when_to_use", "title", "tags", "status", "pinned")
"""Fields of a bullet that spec 2 does not know; a stored file leaves them out while they say
nothing.
"""
_SENTENCE = re.compile(r"(?<=[.。])\s+|(?<=。)")


class CorruptPlaybook(ValueError):
    """A playbook that cannot be read. `place` is where in it: a JSON path or a line."""

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"{place}: {reason}")


def join_searchable(when_to_use: str, title: str, content: str, keywords: list[str]) -> str:
    """One part a line, keywords last, empty parts left out."""
    return "\n".join(part for part in (when_to_use, title, content, " ".join(keywords)) if part)


def searchable(when_to_use: str, title: str, content: str, keywords: list[str]) -> str:
    """The text that search sees when none is given: a word that is said twice would count twice."""
    return join_searchable(unsaid(when_to_use, content), unsaid(title, content), content, keywords)


def unsaid(part: str, content: str) -> str:
    """What of a title or a condition the content does not say itself, sentence by sentence; case,
    spacing and the mark at the end do not matter.
    """
    said = _words(content)
    return " ".join(s for s in _SENTENCE.split(part.strip()) if s and not _is_said(_words(s), said))


def _is_said(words: str, text: str) -> bool:
    """Whether the text holds these words, and not as a piece of a longer one."""
    start = text.find(words)
    while start >= 0:
        around = text[max(0, start - 1) : start], text[start + len(words) :][:1]
        if not any(c.isascii() and c.isalnum() for c in around):
            return True
        start = text.find(words, start + 1)
    return False


def _words(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".…。,:;、")


class Bullet(BaseModel):
    """One entry of a playbook. `id` is its key; unknown fields are ignored."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore")

    id: str = Field(min_length=1, validation_alias=AliasChoices("id", "key", "bullet_id", "name"))
    section: str
    content: str = Field(validation_alias=AliasChoices("content", "text"))
    searchable_text: str = ""
    keywords: list[str] = Field(default_factory=list)
    helpful: Count = 0
    harmful: Count = 0
    source_trajectory: str = ""
    neutral: Count = 0
    when_to_use: str = ""
    title: str = ""
    tags: list[str] = Field(default_factory=list)
    status: BulletStatus = "active"
    pinned: bool = False

    @model_validator(mode="after")
    def _default_searchable(self) -> Bullet:
        if "searchable_text" not in self.model_fields_set:
            self.searchable_text = self.default_searchable_text()
        return self

    def default_searchable_text(self) -> str:
        """What `searchable_text` is when nobody gave one."""
        return searchable(self.when_to_use, self.title, self.content, self.keywords)

    @computed_field
    @property
    def confidence_score(self) -> float:
        """helpful / (helpful + harmful), 0..1; .5 while nobody has voted."""
        total = self.helpful + self.harmful
        return self.helpful / total if total else 0.5


def _now() -> datetime:
    return datetime.now(UTC)


class PlaybookMetadata(BaseModel):
    """Times are kept as they were given; our own are UTC."""

    created_at: datetime = Field(default_factory=_now)
    updated_at: datetime = Field(default_factory=_now)


class Playbook(BaseModel):
    """All bullets of one playbook, in their order."""

    metadata: PlaybookMetadata = Field(default_factory=PlaybookMetadata)
    bullets: list[Bullet] = Field(default_factory=list[Bullet])

    @model_validator(mode="before")
    @classmethod
    def _is_one(cls, data: Any) -> Any:
        # Another program's JSON, read as "no bullets" and then saved, would wipe a playbook.
        if isinstance(data, Mapping):
            names = set(cast("Mapping[str, Any]", data))
            if names - {"metadata"} and "bullets" not in names:
                raise ValueError("not a playbook: it has other fields but no 'bullets'")
        return cast("Any", data)

    def document(self) -> dict[str, Any]:
        """The stored JSON of spec 2: its fields always, ours only where they say something, nothing
        computed.
        """
        silent = Bullet(id="-", section="", content="")
        unsaid = [(name, getattr(silent, name)) for name in EXTENSIONS]
        bullets = [vars(bullet).copy() for bullet in self.bullets]  # texts, numbers, lists: is JSON
        for raw in bullets:
            for name, nothing in unsaid:
                if raw[name] == nothing:
                    del raw[name]
        return {"metadata": self.metadata.model_dump(mode="json"), "bullets": bullets}


def _upper(value: object) -> object:
    return value.strip().upper() if isinstance(value, str) else value


class DeltaContextItem(BaseModel):
    """One edit of a playbook, in either spelling of the documents.

    ADD makes its own key. UPDATE changes what is given and keeps the section. MERGE folds
    `source_ids` into `bullet_id`, or into the first source. KEEP says that a bullet was looked at
    and is right as it is.
    """

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    type: Annotated[DeltaType, BeforeValidator(_upper)]
    section: str = ""
    bullet_id: str | None = Field(
        None, validation_alias=AliasChoices("bullet_id", "id", "name", "target_id", "key")
    )
    content: str = Field("", validation_alias=AliasChoices("content", "text", "merged_text"))
    reasoning: str = Field("", validation_alias=AliasChoices("reasoning", "reason"))
    source_ids: list[str] = Field(default_factory=list)
    when_to_use: str | None = None
    title: str | None = None
    keywords: list[str] | None = None
    tags: list[str] | None = None

    @field_validator("section", "content", "reasoning", mode="before")
    @classmethod
    def _null_is_empty(cls, value: object) -> object:
        return "" if value is None else value

    @field_validator("source_ids", mode="before")
    @classmethod
    def _null_is_none_given(cls, value: object) -> object:
        return [] if value is None else value


class DeltaResult(BaseModel):
    """What became of one delta. `absorbed` holds the bullets that a MERGE took in."""

    index: int
    type: DeltaType
    action: DeltaAction
    key: str | None = None
    reason: str = ""
    before: Bullet | None = None
    after: Bullet | None = None
    absorbed: list[Bullet] = Field(default_factory=list[Bullet])


class SearchQuery(BaseModel):
    """What to look for. Lists mean any of; an empty or missing one filters nothing. Sections in any
    spelling, or by slug. A bullet of a file has neither kind nor time to filter by.
    """

    query_text: str
    top_k: int = Field(10, ge=0)
    section_filter: list[str] | None = None
    tags: list[str] = Field(default_factory=list)
    status: BulletStatus = "active"
    min_confidence: float = Field(0.3, ge=0.0, le=1.0, allow_inf_nan=False)


class SearchResult(BaseModel):
    """One hit. The scores are those that were added up, 0..1."""

    bullet: Bullet
    vector_score: float
    bm25_score: float
    combined_score: float
