"""Pages of a list by keyset: newest first, stable while rows are added, the same cost on every
page.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from apps.memory_api.core.errors import Invalid
from apps.memory_api.core.schemas import Page

Row = TypeVar("Row")
Item = TypeVar("Item", bound=BaseModel)


@dataclass(frozen=True)
class Cursor:
    """The last row of a page of one list. Opaque on the wire."""

    table: str
    created_at: datetime
    id: UUID

    def encode(self) -> str:
        text = f"{self.table} {self.created_at.isoformat()} {self.id.hex}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str | None) -> Cursor | None:
        if text is None:
            return None
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            table, moment, key = raw.decode().split(" ")
            created_at = datetime.fromisoformat(moment)
            if created_at.tzinfo is None:
                raise _foreign()
            return cls(table, created_at, UUID(key))
        except ValueError:  # also binascii.Error and UnicodeDecodeError
            raise _foreign() from None


def _foreign() -> Invalid:
    return Invalid("This cursor did not come from this list.", field="cursor")


def after(
    query: Select[Row],
    created_at: InstrumentedAttribute[datetime],
    key: InstrumentedAttribute[UUID],
    cursor: Cursor | None,
) -> Select[Row]:
    """Order newest first and start behind the cursor. Raises `Invalid` for one of another list."""
    if cursor is not None:
        if cursor.table != created_at.class_.__tablename__:
            raise _foreign()
        query = query.where(tuple_(created_at, key) < (cursor.created_at, cursor.id))
    return query.order_by(created_at.desc(), key.desc())


def page(rows: Sequence[Any], limit: int, show: Callable[[Any], Item]) -> Page[Item]:
    """A page of at most `limit` items out of up to `limit + 1` rows."""
    shown = rows[:limit]
    more = len(rows) > limit
    last = Cursor(shown[-1].__tablename__, shown[-1].created_at, shown[-1].id) if more else None
    return Page[Item](
        items=[show(row) for row in shown], next_cursor=last.encode() if last else None
    )
