"""Pages of a list: the one before, the next one, and how many there are.

Lists have cursors that lead forward only. So the address of a page has its number and the cursors
of the pages before it: `page=3.CURSOR2.CURSOR3`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query

from memory_api.core.pagination import Cursor, invalid_cursor

MAX_CURSORS = 30
"""Pages that one can go back without starting again at the first."""
MAX_COUNTED = 10_000
"""Rows of a list that are counted. More are "more than"."""


@dataclass(frozen=True)
class Place:
    """A page of a list, the first one by default."""

    number: int = 1
    cursors: tuple[str, ...] = ()
    """Of the pages before it and, last, its own. The first page has none."""

    @property
    def cursor(self) -> Cursor | None:
        return Cursor.decode(self.cursors[-1]) if self.cursors else None

    @property
    def is_first(self) -> bool:
        return not self.cursors

    @property
    def previous(self) -> str | None:
        """The `page` before this one, '' if it is the first; None if it is not known."""
        if self.number == 2:
            return ""
        return _encode(self.number - 1, self.cursors[:-1]) if len(self.cursors) > 1 else None

    def followed_by(self, next_cursor: str | None, total: int, size: int) -> Paging:
        """`total` is at most `MAX_COUNTED` + 1."""
        following = None
        if next_cursor:
            cursors = (*self.cursors, next_cursor)[-MAX_CURSORS:]
            following = _encode(self.number + 1, cursors)
        pages = math.ceil(min(total, MAX_COUNTED) / size)
        return Paging(self, following, total, max(pages, self.number))


@dataclass(frozen=True)
class Paging:
    """A page with its neighbors, and the pages and items of the list."""

    place: Place
    following: str | None
    total: int
    pages: int

    @property
    def is_counted(self) -> bool:
        """Whether `total` and `pages` are all there are."""
        return self.total <= MAX_COUNTED


def _encode(number: int, cursors: tuple[str, ...]) -> str:
    return ".".join([str(number), *cursors])


async def _read_place(
    page: Annotated[str, Query(max_length=32_000)] = "",
) -> Place:
    if not page:
        return Place()
    number, *cursors = page.split(".")
    if not (number.isascii() and number.isdigit() and len(number) <= 6) or not cursors:
        raise invalid_cursor()
    if int(number) <= len(cursors):
        raise invalid_cursor()
    return Place(int(number), tuple(cursors))


PlaceQuery = Annotated[Place, Depends(_read_place)]
