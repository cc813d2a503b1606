"""Splits the pages of a document into chunks at headings, paragraphs, sentences and rows of tables.
Pure.

A chunk never crosses a page or a heading. Its text is `page[chunk.start:chunk.end]`; if it begins
inside a table, the heading of the table comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memory_api.collections.markdown_tables import MarkdownTable, find_tables
from memory_api.collections.sentences import Span, split_sentences
from memory_api.text.terms import estimate_tokens

MIN_SHARE = 0.2
"""A last chunk below this share of the limit joins the chunk before it."""
PARAGRAPH_SHARE = 0.6
"""A chunk that has this share of the limit ends with its paragraph."""
MAX_HEADING_LENGTH = 200
MAX_ROW_TOKENS = 2_048
"""A longer row of a table is cut, and a longer heading is not repeated."""

_HEADING = re.compile(r"^(#{1,6})[ \t]+(\S[^\n]*)$", re.MULTILINE)
_FENCE = re.compile(r"^(?:```|~~~)", re.MULTILINE)


@dataclass(frozen=True)
class Chunk:
    """A part of a page. `start` and `end` are offsets in the text of the page, in characters.
    `headings` are those above it, outermost first.
    """

    text: str
    page: int
    start: int
    end: int
    headings: tuple[str, ...] = ()


def split_pages(
    pages: Sequence[str], chunk_tokens: int, *, has_headings: bool = False
) -> list[Chunk]:
    """The chunks of all pages, each of about `chunk_tokens` estimated tokens at most (a fifth more
    if the last sentences of a section are few, and more if one row of a table is longer). Pages
    count from 1. Text with headings is Markdown, whose tables are split between rows.
    """
    chunks: list[Chunk] = []
    headings: dict[int, str] = {}
    for number, page in enumerate(pages, start=1):
        for start, end, heading in _sections(page, has_headings):
            if heading is not None:
                level, title = heading
                headings = {n: text for n, text in headings.items() if n < level} | {level: title}
            path = tuple(headings[level] for level in sorted(headings))
            for (first, last), table_heading in _pack(
                page, start, end, chunk_tokens, has_tables=has_headings
            ):
                text = table_heading + page[first:last]
                chunks.append(Chunk(text, number, first, last, path))
    return chunks


def _sections(page: str, has_headings: bool) -> Iterator[tuple[int, int, tuple[int, str] | None]]:
    """(start, end, heading) of the text below each heading."""
    marks = list(_headings(page)) if has_headings else []
    yield 0, marks[0].start() if marks else len(page), None
    for index, mark in enumerate(marks):
        end = marks[index + 1].start() if index + 1 < len(marks) else len(page)
        title = mark[2].rstrip(" \t#")[:MAX_HEADING_LENGTH]
        yield mark.end(), end, (len(mark[1]), title)


def _headings(page: str) -> Iterator[re.Match[str]]:
    """The headings outside of fenced code."""
    fences = [match.start() for match in _FENCE.finditer(page)]
    passed = 0
    for mark in _HEADING.finditer(page):
        while passed < len(fences) and fences[passed] < mark.start():
            passed += 1
        if passed % 2 == 0:
            yield mark


def _pack(
    page: str, start: int, end: int, limit: int, *, has_tables: bool
) -> Iterator[tuple[Span, str]]:
    """Spans of whole sentences and rows within the limit, without spaces around them, each with the
    heading of the table that it begins inside.
    """
    packed: list[_Part] = []
    part = _Part(start, start)
    for unit in _units(page, start, end, limit, has_tables):
        full = max(limit - part.heading_tokens, part.heading_tokens)
        ends_paragraph = (
            part.tokens >= limit * PARAGRAPH_SHARE and "\n\n" in page[unit.start - 2 : unit.start]
        )
        if part.tokens and (part.tokens + unit.tokens > full or ends_paragraph):
            packed.append(part)
            part = replace(unit, end=unit.start, tokens=0)
        part = replace(part, end=unit.end, tokens=part.tokens + unit.tokens)
    packed.append(part)
    if len(packed) > 1 and packed[-1].tokens < limit * MIN_SHARE:
        last = packed.pop()
        packed[-1] = replace(packed[-1], end=last.end)
    for part in packed:
        text = page[part.start : part.end]
        left = len(text) - len(text.lstrip())
        if text.strip():
            first = part.start + left
            yield (first, first + len(text.strip())), part.heading


@dataclass(frozen=True)
class _Part:
    """A span of a page with its estimated tokens. `heading` is that of the table that the span
    begins inside.
    """

    start: int
    end: int
    tokens: int = 0
    heading: str = ""
    heading_tokens: int = 0


def _units(page: str, start: int, end: int, limit: int, has_tables: bool) -> Iterator[_Part]:
    """The sentences, and the rows of tables. The heading of a table and its first row are one."""
    passed = start
    for table in find_tables(page[start:end]) if has_tables else ():
        yield from _sentences(page, passed, start + table.start, limit)
        yield from _rows(page, start, table)
        passed = start + table.end
    yield from _sentences(page, passed, end, limit)


def _sentences(page: str, start: int, end: int, limit: int) -> Iterator[_Part]:
    for begin, stop in split_sentences(page[start:end]):
        for (first, last), tokens in _cut(page, start + begin, start + stop, limit):
            yield _Part(first, last, tokens)


def _rows(page: str, offset: int, table: MarkdownTable) -> Iterator[_Part]:
    spans = list(table.rows)
    repeated: tuple[str, int] = ("", 0)
    if table.heading is not None:
        heading = page[offset + table.heading[0] : offset + table.heading[1]]
        if (tokens := estimate_tokens(heading)) <= MAX_ROW_TOKENS:
            repeated = (heading, tokens)
        spans[:1] = [(table.start, spans[0][1] if spans else table.end)]
    for number, (begin, stop) in enumerate(spans):
        for (first, last), tokens in _cut(page, offset + begin, offset + stop, MAX_ROW_TOKENS):
            above, above_tokens = repeated if number else ("", 0)
            yield _Part(first, last, tokens, above, above_tokens)


def _cut(page: str, start: int, end: int, limit: int) -> Iterator[tuple[Span, int]]:
    """The span, halved at a space until each half is within the limit."""
    pending = [(start, end)]
    while pending:
        first, last = pending.pop()
        tokens = estimate_tokens(page[first:last])
        if tokens <= limit or last - first < 2:
            yield (first, last), max(tokens, 1)
            continue
        middle = (first + last) // 2
        space = max(page.rfind(sign, first + 1, middle) for sign in (" ", "\n", "、", "，"))
        middle = space + 1 if space > first + (last - first) // 4 else middle
        pending += [(middle, last), (first, middle)]
