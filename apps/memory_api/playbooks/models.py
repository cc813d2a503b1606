"""Data models of playbooks: bullets, deltas, search queries (S2 "Data Models").

This file imports nothing else from the service, so the pure modules built on it can be used alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ModelWrapValidatorHandler,
    computed_field,
    field_validator,
    model_validator,
)
from typing_extensions import TypeAliasType

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-([0-9]{1,120})")
_LEGACY_KEY = re.compile(r"kpt_([0-9]{1,120})")
LEGACY_SLUG = "kpt"


def parse_key(key: str) -> tuple[str, int] | None:
    """(slug, number) of a key; ("kpt", 7) for the legacy key `kpt_007`; None for any
    other format.
    """
    if legacy := _LEGACY_KEY.fullmatch(key):
        return LEGACY_SLUG, int(legacy[1])
    if match := _KEY.fullmatch(key):
        return match[1], int(match[2])
    return None


def _to_lower_case(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _fold_tags(tags: list[str]) -> list[str]:
    return list(dict.fromkeys(tag.lower() for tag in tags))


Count = Annotated[int, Field(ge=0)]
FoldedTags = Annotated[list[str], AfterValidator(_fold_tags)]
"""Read in any case, stored in lower case, each once."""
BulletStatus = TypeAliasType(
    "BulletStatus", Literal["active", "quarantined", "archived", "deleted"]
)
DeltaType = TypeAliasType("DeltaType", Literal["ADD", "UPDATE", "DELETE", "MERGE", "KEEP"])
DeltaAction = TypeAliasType(
    "DeltaAction",
    Annotated[
        Literal["added", "updated", "merged", "deleted", "kept", "rejected"],
        Field(description="What a delta did. `kept`: the bullet is unchanged."),
    ],
)
VerdictTag = TypeAliasType(
    "VerdictTag",
    Annotated[Literal["helpful", "harmful", "neutral"], BeforeValidator(_to_lower_case)],
)
"""Read in any case: `Helpful` is `helpful`."""
EXTENSION_FIELDS = (
    "neutral",
    "when_to_use",
    "title",
    "tags",
    "status",
    "pinned",
    "awaiting_confirmation",
)
"""Fields of a bullet that S2 does not define. A stored file omits those with their default value.
"""
TRIAL = "Try:"
"""Start of advice that nobody has shown to work. The prompts of reflection and curation name it."""
_SENTENCE = re.compile(r"(?<=[.。])\s+|(?<=。)")


class CorruptPlaybook(ValueError):
    """A playbook file that cannot be parsed. `location` is a JSON path or a line."""

    def __init__(self, location: str, reason: str) -> None:
        self.location = location
        self.reason = reason
        super().__init__(f"{location}: {reason}")


def join_search_text(when_to_use: str, title: str, content: str, keywords: list[str]) -> str:
    """Joins the non-empty parts, one per line, with the keywords last."""
    return "\n".join(part for part in (when_to_use, title, content, " ".join(keywords)) if part)


def default_search_text(when_to_use: str, title: str, content: str, keywords: list[str]) -> str:
    """The `searchable_text` of a bullet without its own one. Sentences of the title and the
    condition that the content repeats are omitted, because BM25 would count their words twice.
    """
    return join_search_text(
        parts_not_in_content(when_to_use, content),
        parts_not_in_content(title, content),
        content,
        keywords,
    )


MAX_SENTENCES = 20
MAX_PHRASE_LENGTH = 500
MAX_SEARCHED_LENGTH = 20_000
_NO_LETTER = re.compile(r"[^A-Za-z0-9]")


def parts_not_in_content(part: str, content: str) -> str:
    """The sentences of a title or a condition that do not occur in the content. Case, spacing and
    the final punctuation mark are ignored. Only the first `MAX_SENTENCES` sentences of up to
    `MAX_PHRASE_LENGTH` characters are searched, in the first `MAX_SEARCHED_LENGTH` characters,
    which bounds the work on repetitive texts.
    """
    if not part:
        return ""
    text = _normalize_phrase(content[:MAX_SEARCHED_LENGTH])
    sentences = _SENTENCE.split(part.strip())
    if len(sentences) > MAX_SENTENCES:
        return part.strip()
    return " ".join(s for s in sentences if s and not _contains_phrase(text, _normalize_phrase(s)))


_CONDITION_WORDS = frozenset(
    (
        *("when", "whenever", "if", "before", "after", "while", "once", "unless", "until"),
        *("during", "always", "for", "in", "on", "at", "as", "with", "without"),
    )
)
"""Words that a condition starts with; any other one follows `When`."""
_SENTENCE_END = re.compile(r"[.!?]\s")


def format_advice(title: str, condition: str, content: str) -> str:
    """Title, condition and advice of a bullet as one text, without repetitions and without the key:
    `Large exports. When an export is large: split the period into months.`
    """
    text = content
    if when := parts_not_in_content(condition, content):
        is_whole = when == condition.strip()
        text = f"{_format_condition(when)} {text}" if is_whole else f"{text} {when}"
    if heading := parts_not_in_content(title, content):
        text = f"{_end_with(heading, '.')} {text}"
    return text


def _format_condition(when: str) -> str:
    """`When an export is large:`, whether or not the condition starts so."""
    first = when.split(maxsplit=1)[0]
    if first.casefold() in _CONDITION_WORDS:
        when = when[0].upper() + when[1:]
    elif first.isascii():
        when = f"When {when[0].lower() if when[1:2].islower() else when[0]}{when[1:]}"
    return _end_with(when, "." if _SENTENCE_END.search(when) else ":")


def _end_with(text: str, mark: str) -> str:
    """The text with this mark at its end, unless a sentence ends there that needs another one."""
    bare = text.rstrip(" .:,;、")
    return bare if bare.endswith(("。", "!", "?", "！", "？")) else f"{bare}{mark}"


def _contains_phrase(text: str, phrase: str) -> bool:
    """Whether the text contains the phrase at word boundaries."""
    if len(phrase) > MAX_PHRASE_LENGTH:
        return False
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        neighbors = text[max(0, start - 1) : start], text[end : end + 1]
        if not any(c.isascii() and c.isalnum() for c in neighbors):
            return True
        inside_word = _NO_LETTER.search(text, start)
        start = text.find(phrase, inside_word.end()) if inside_word else -1
    return False


def _normalize_phrase(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".…。,:;、")


class Bullet(BaseModel):
    """One entry of a playbook. `id` is its key. Unknown fields are ignored."""

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
    tags: FoldedTags = Field(default_factory=list)
    status: BulletStatus = "active"
    pinned: bool = False
    awaiting_confirmation: bool = Field(
        default=False,
        description="True for a quarantined bullet that one trace taught and that quotes text of a "
        "tool or a user, or contradicts a bullet. A second independent trace or a person "
        "activates it.",
    )

    @model_validator(mode="after")
    def _default_searchable(self) -> Bullet:
        if "searchable_text" not in self.model_fields_set:
            self.searchable_text = self.default_searchable_text()
        return self

    def default_searchable_text(self) -> str:
        return default_search_text(self.when_to_use, self.title, self.content, self.keywords)

    @computed_field
    @property
    def confidence_score(self) -> float:
        """helpful / (helpful + harmful), 0..1; 0.5 without verdicts."""
        total = self.helpful + self.harmful
        return self.helpful / total if total else 0.5


def _now() -> datetime:
    return datetime.now(UTC)


def _utc_if_naive(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


ZonedDatetime = Annotated[datetime, AfterValidator(_utc_if_naive)]


class PlaybookMetadata(BaseModel):
    """Times keep their time zone. One without a zone is UTC, as are the times set by the service,
    because Python does not compare times with and without a zone.
    """

    created_at: ZonedDatetime = Field(default_factory=_now)
    updated_at: ZonedDatetime = Field(default_factory=_now)


class Playbook(BaseModel):
    """All bullets of one playbook, in their order."""

    metadata: PlaybookMetadata = Field(default_factory=PlaybookMetadata)
    bullets: Annotated[list[Bullet], FailFast()] = Field(default_factory=list[Bullet])

    @model_validator(mode="before")
    @classmethod
    def _require_bullets(cls, data: Any) -> Any:
        # Another program's JSON, parsed as an empty playbook and saved, would delete all bullets.
        if isinstance(data, Mapping):
            names = set(cast("Mapping[str, Any]", data))
            if names - {"metadata"} and "bullets" not in names:
                raise ValueError("not a playbook: 'bullets' is required")
        return cast("Any", data)

    def to_document(self) -> dict[str, Any]:
        """The stored JSON of S2: all its fields, extension fields with a non-default value, and no
        computed field.
        """
        empty = Bullet(id="-", section="", content="")
        defaults = [(name, getattr(empty, name)) for name in EXTENSION_FIELDS]
        bullets = [vars(bullet).copy() for bullet in self.bullets]  # all values are JSON already
        for fields in bullets:
            for name, default in defaults:
                if fields[name] == default:
                    del fields[name]
        return {"metadata": self.metadata.model_dump(mode="json"), "bullets": bullets}


def _upper(value: object) -> object:
    return value.strip().upper() if isinstance(value, str) else value


_S2_DELTA_FIELDS = {"section", "content", "reasoning"}
"""Required fields of a delta in S2. Any other delta has at least the field that its type needs."""


class DeltaContextItem(BaseModel):
    """One edit of a playbook. `id`, `text` and `reason` are accepted as other names of fields.

    ADD assigns a new key. UPDATE changes the given fields and does not change the section. MERGE
    merges `source_ids` into `bullet_id`, or into the first source. KEEP confirms a bullet
    unchanged.
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
    tags: FoldedTags | None = None

    @field_validator("section", "content", "reasoning", mode="before")
    @classmethod
    def _null_is_empty(cls, value: object) -> object:
        return "" if value is None else value

    @field_validator("source_ids", mode="before")
    @classmethod
    def _null_is_empty_list(cls, value: object) -> object:
        return [] if value is None else value

    @model_validator(mode="wrap")
    @classmethod
    def _require_field(cls, data: Any, parse: ModelWrapValidatorHandler[Self]) -> Self:
        """The field that the type needs, or all fields of S2. Of these, `bullet_id` may be null."""
        delta = parse(data)
        needed = {"ADD": "content", "MERGE": "source_ids"}.get(delta.type, "bullet_id")
        fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        names = ("content", "text", "merged_text") if needed == "content" else (needed,)
        is_null = needed != "bullet_id" and any(fields.get(name, "") is None for name in names)
        given = delta.model_fields_set
        if is_null or not (needed in given or given >= _S2_DELTA_FIELDS):
            raise ValueError(f"{delta.type} requires `{needed}`")
        return delta


class DeltaResult(BaseModel):
    """The result of one delta. `absorbed` holds the bullets that a MERGE merged into the
    survivor.
    """

    index: int
    type: DeltaType
    action: DeltaAction
    key: str | None = None
    reason: str = ""
    before: Bullet | None = None
    after: Bullet | None = None
    absorbed: list[Bullet] = Field(default_factory=list[Bullet])


class SearchQuery(BaseModel):
    """A search in a playbook file. A list matches any of its items; an empty or missing one does
    not filter. Section names match in any spelling, or by slug.
    """

    query_text: str
    top_k: int = Field(10, ge=0)
    section_filter: list[str] | None = None
    tags: FoldedTags = Field(default_factory=list)
    status: BulletStatus = "active"
    min_confidence: float = Field(0.3, ge=0.0, le=1.0, allow_inf_nan=False)


class SearchResult(BaseModel):
    """One hit. `vector_score` and `bm25_score` are normalized to 0..1."""

    bullet: Bullet
    vector_score: float
    bm25_score: float
    combined_score: float


MAX_TEXT = 100_000
MAX_TAG = 64
