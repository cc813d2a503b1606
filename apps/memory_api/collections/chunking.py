"""Splits the pages of a document into chunks at headings, paragraphs and sentences. Pure.

`page[chunk.start:chunk.end] == chunk.text`, and a chunk never crosses a page or a heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memory_api.text.sentences import Span, split_sentences
from memory_api.text.terms import estimate_tokens

MIN_SHARE = 0.2
"""A last chunk below this share of the limit joins the chunk before it."""
PARAGRAPH_SHARE = 0.6
"""A chunk that has this share of the limit ends with its paragraph."""
MAX_HEADING_LENGTH = 200

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
    if the last sentences of a section are few). Pages count from 1.
    """
    chunks: list[Chunk] = []
    headings: dict[int, str] = {}
    for number, page in enumerate(pages, start=1):
        for start, end, heading in _sections(page, has_headings):
            if heading is not None:
                level, title = heading
                headings = {n: text for n, text in headings.items() if n < level} | {level: title}
            path = tuple(headings[level] for level in sorted(headings))
            for first, last in _pack(page, start, end, chunk_tokens):
                chunks.append(Chunk(page[first:last], number, first, last, path))
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


def _pack(page: str, start: int, end: int, limit: int) -> Iterator[Span]:
    """Spans of whole sentences within the limit, without spaces around them."""
    packed: list[tuple[Span, int]] = []
    first, size = start, 0
    for (begin, stop), tokens in _sized_sentences(page, start, end, limit):
        ends_paragraph = size >= limit * PARAGRAPH_SHARE and "\n\n" in page[begin - 2 : begin]
        if size and (size + tokens > limit or ends_paragraph):
            packed.append(((first, begin), size))
            first, size = begin, 0
        size += tokens
        end = stop
    if size:
        packed.append(((first, end), size))
    if len(packed) > 1 and packed[-1][1] < limit * MIN_SHARE:
        (_, stop), tokens = packed.pop()
        (first, _), size = packed.pop()
        packed.append(((first, stop), size + tokens))
    for (first, stop), _ in packed:
        text = page[first:stop]
        left = len(text) - len(text.lstrip())
        if text.strip():
            yield first + left, first + left + len(text.strip())


def _sized_sentences(page: str, start: int, end: int, limit: int) -> Iterator[tuple[Span, int]]:
    for begin, stop in split_sentences(page[start:end]):
        yield from _cut(page, start + begin, start + stop, limit)


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
