"""Finds the tables of a Markdown text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memory_api.collections.sentences import Span

MAX_HEADING_ROWS = 4
_DELIMITER_CELL = re.compile(r":?-+:?")


@dataclass(frozen=True)
class MarkdownTable:
    """The spans of a table. `heading` has the heading rows and the delimiter row, None if the table
    has none; then each row starts with `|`.
    """

    heading: Span | None
    rows: tuple[Span, ...]

    @property
    def start(self) -> int:
        return (self.heading or self.rows[0])[0]

    @property
    def end(self) -> int:
        return self.rows[-1][1] if self.rows else (self.heading or (0, 0))[1]


def find_tables(text: str) -> list[MarkdownTable]:
    """The tables in the order of the text. A row includes its line break."""
    tables: list[MarkdownTable] = []
    lines: list[Span] = []
    start = 0
    for line in [*text.splitlines(keepends=True), ""]:
        end = start + len(line)
        if "|" in line:
            lines.append((start, end))
        elif lines:
            tables += _to_tables(text, lines)
            lines = []
        start = end
    return tables


def _is_delimiter(line: str) -> bool:
    """Whether a line consists of dashes, as below the heading of a table: `|---|:--|`."""
    cells = line.strip().removeprefix("|").removesuffix("|").split("|")
    return all(_DELIMITER_CELL.fullmatch(cell.strip()) for cell in cells)


def _to_tables(text: str, lines: list[Span]) -> list[MarkdownTable]:
    """The table in adjacent lines with `|`, if it is one."""
    for index, (start, end) in enumerate(lines[1 : MAX_HEADING_ROWS + 1], start=1):
        if _is_delimiter(text[start:end]):
            return [MarkdownTable((lines[0][0], end), tuple(lines[index + 1 :]))]
    tables: list[MarkdownTable] = []
    rows: list[Span] = []
    for start, end in [*lines, (0, 0)]:
        if text[start:end].lstrip().startswith("|"):
            rows.append((start, end))
        elif rows:
            tables.append(MarkdownTable(None, tuple(rows)))
            rows = []
    return tables
