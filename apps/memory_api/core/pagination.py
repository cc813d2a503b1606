"""Keyset pages of lists: stable while rows are added, and every page costs the same."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from pydantic import TypeAdapter
from sqlalchemy import Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from memory_api.core.errors import InvalidRequest
from memory_api.core.schemas import Page

Row = TypeVar("Row")
PageT = TypeVar("PageT", bound=Page[Any])

_TEXTS = TypeAdapter(list[str])
MAX_INTEGER = 2**31 - 1


@dataclass(frozen=True)
class Cursor:
    """The position of the last item of a page: the name of the list and the item's sort key.

    The wire form is opaque to clients. The methods that read a key raise `InvalidRequest` if the
    cursor is of another list.
    """

    list_name: str
    key: tuple[str, ...]

    def encode(self) -> str:
        text = json.dumps([self.list_name, *self.key])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Raises `InvalidRequest` if the service did not make this cursor."""
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            list_name, *key = _TEXTS.validate_json(raw)
            has_nul = b"\0" in "".join(key).encode()
        except ValueError:  # includes binascii.Error, UnicodeEncodeError and ValidationError
            raise invalid_cursor() from None
        if has_nul:
            raise invalid_cursor()
        return cls(list_name, tuple(key))

    def texts(self, list_name: str, count: int) -> tuple[str, ...]:
        """The key as `count` texts."""
        if self.list_name != list_name or len(self.key) != count:
            raise invalid_cursor()
        return self.key

    def text(self, list_name: str) -> str:
        return self.texts(list_name, 1)[0]

    def integer(self, list_name: str) -> int:
        """The key as an integer from 0 to 2,147,483,647."""
        text = self.text(list_name)
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise invalid_cursor()
        if int(text) > MAX_INTEGER:
            raise invalid_cursor()
        return int(text)

    def time_and_id(self, list_name: str) -> tuple[datetime, UUID]:
        time, identifier = self.texts(list_name, 2)
        return parse_cursor_time(time), parse_cursor_id(identifier)


def parse_cursor_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise invalid_cursor() from None
    if time.tzinfo is None:
        raise invalid_cursor()
    try:
        return time.astimezone(UTC)
    except OverflowError:  # outside of the years 1 to 9999 in UTC
        raise invalid_cursor() from None


def parse_cursor_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise invalid_cursor() from None


def parse_cursor_bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise invalid_cursor() from None


def invalid_cursor() -> InvalidRequest:
    return InvalidRequest(
        "`cursor` is not a `next_cursor` of this list. Omit it to start at the first page.",
        field="cursor",
    )


def keyset_page(
    query: Select[Row],
    created_at: InstrumentedAttribute[datetime],
    key: InstrumentedAttribute[UUID],
    cursor: Cursor | None,
) -> Select[Row]:
    """Order newest first and start after the cursor. Raises `InvalidRequest` for the cursor of
    another list.
    """
    if cursor is not None:
        position = cursor.time_and_id(created_at.class_.__tablename__)
        query = query.where(tuple_(created_at, key) < position)
    return query.order_by(created_at.desc(), key.desc())


def time_and_id_cursor(row: Any) -> Cursor:
    """The cursor of a row of a list that `keyset_page` orders."""
    return Cursor(row.__tablename__, (row.created_at.isoformat(), row.id.hex))


def to_page(
    page: type[PageT],
    rows: Sequence[Any],
    limit: int,
    to_item: Callable[[Any], Any] = lambda row: row,
    to_cursor: Callable[[Any], Cursor] = time_and_id_cursor,
) -> PageT:
    """A page of at most `limit` items out of up to `limit + 1` rows. An item has the attributes of
    its row unless `to_item` converts it.
    """
    shown = rows[:limit]
    next_cursor = to_cursor(shown[-1]).encode() if len(rows) > limit else None
    items = [to_item(row) for row in shown]
    fields = {"items": items, "next_cursor": next_cursor}
    return page.model_validate(fields, from_attributes=True)
