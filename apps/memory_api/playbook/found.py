"""What a reader of an older form found, before every bullet has a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Found:
    """One entry. `place` says where it stood; `key` is None when it had none."""

    place: str
    section: str
    key: str | None
    content: str = ""
    helpful: int = 0
    harmful: int = 0


@dataclass
class Findings:
    """All entries of a text in their order, the sections it names, and what a person may want to
    know.
    """

    entries: list[Found] = field(default_factory=list[Found])
    section_names: list[str] = field(default_factory=list[str])
    updated_at: datetime | None = None
    notes: list[str] = field(default_factory=list[str])
