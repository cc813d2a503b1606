"""The wire models' common ground: bounded names and scores, and what every body does with unknown
input.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

MAX_NAME = 128
MAX_TAGS = 64
MAX_EVENTS = 20_000
SMALLEST = 1.2e-38
"""The smallest number that a 4-byte float holds in full precision."""


def _utc(value: datetime) -> datetime:
    """A time without a zone is taken as UTC."""
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC this is before year 1 or after year 9999") from None


def _single_precision(value: float) -> float:
    """Scores are searched by as 4-byte floats: what is too small for one is 0, PostgreSQL refuses
    it.
    """
    return value if value >= SMALLEST else 0.0


def is_playbook_name(name: str) -> bool:
    """It stands in paths: no slash, no space at an end, nothing that cannot be printed."""
    good = name.isprintable() and name.strip() == name and "/" not in name
    return good and len(name) <= MAX_NAME and name not in ("", ".", "..")


def _names_a_playbook(name: str) -> str:
    if not is_playbook_name(name):
        raise ValueError("not a name for a playbook: no slash, no space at its ends")
    return name


Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]
PlaybookName = Annotated[Name, AfterValidator(_names_a_playbook)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
Unit = Annotated[
    float, Field(ge=0.0, le=1.0, allow_inf_nan=False), AfterValidator(_single_precision)
]
"""A number from 0 to 1, both included; never NaN."""
Time = Annotated[datetime, AfterValidator(_utc)]
"""A moment in UTC."""
Metadata = dict[str, Any]


class Model(BaseModel):
    """What we send: unknown fields are a mistake of ours."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Body(BaseModel):
    """What we are sent: an unknown field is refused by name rather than lost in silence."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, str_strip_whitespace=False)


class TenantBody(Body):
    """The body of a request, which may name its tenant: it must be the key's own (`ApiRoute`)."""

    tenant_id: str | None = None


Item = TypeVar("Item")


class Page(Model, Generic[Item]):
    """One page of a list; pass `next_cursor` back as `cursor` for the next, null on the last."""

    items: list[Item]
    next_cursor: str | None = None
