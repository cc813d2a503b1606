"""Pages of a list by keyset: newest first, stable while rows are added, the same cost on every
page.
"""

from __future__ import annotations

import base64
import binascii
import json
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
    """The last row of a page. Opaque on the wire."""

    created_at: datetime
    id: UUID

    def encode(self) -> str:
        text = json.dumps([self.created_at.isoformat(), self.id.hex])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str | None) -> Cursor | None:
        if text is None:
            return None
        try:
            moment, key = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            return cls(datetime.fromisoformat(moment), UUID(key))
        except (ValueError, TypeError, binascii.Error):
            raise Invalid("This cursor did not come from a list of ours.", field="cursor") from None


def after(
    query: Select[Row],
    created_at: InstrumentedAttribute[datetime],
    key: InstrumentedAttribute[UUID],
    cursor: Cursor | None,
) -> Select[Row]:
    """Order newest first and start behind the cursor."""
    if cursor is not None:
        query = query.where(tuple_(created_at, key) < (cursor.created_at, cursor.id))
    return query.order_by(created_at.desc(), key.desc())


def page(rows: Sequence[Any], limit: int, show: Callable[[Any], Item]) -> Page[Item]:
    """A page of at most `limit` items out of up to `limit + 1` rows."""
    shown = rows[:limit]
    more = len(rows) > limit
    cursor = Cursor(shown[-1].created_at, shown[-1].id).encode() if more else None
    return Page[Item](items=[show(row) for row in shown], next_cursor=cursor)
