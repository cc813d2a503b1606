"""Detects values that an agent reads from another cell of a table than the one that it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memory_api.trace_analysis.structure import Divergence
from memory_api.trace_analysis.team import AgentStep, Role
from memory_api.trace_analysis.values import normalize_number

_SEPARATORS = (re.compile(r"\|"), re.compile(r"\t| {2}"), re.compile(r"[,;]"))
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)*(?![\w])")
_MIN_CELLS, _MIN_ROWS = 3, 2
_MAX_TABLE_ROWS, _MAX_LINES = 200, 60
_MAX_GAP = 40
_MAX_LINE = 2_000
_TABLES_KEPT = 4


@dataclass(frozen=True, slots=True)
class Table:
    """A table in an output: the labels of its columns, and its rows with the label first."""

    event_id: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def values(self) -> set[str]:
        return {number for row in self.rows for cell in row if (number := _number(cell))}

    def lines(self) -> dict[str, dict[str, str]]:
        """Label of a column or row -> the values in it, by the label of the other axis."""
        found: dict[str, dict[str, str]] = {}
        for column, label in enumerate(self.header[1:], 1):
            cells = {row[0]: row[column] for row in self.rows}
            found.setdefault(label.casefold(), {}).update(cells)
        for row in self.rows:
            found.setdefault(row[0].casefold(), {}).update(
                zip(self.header[1:], row[1:], strict=True)
            )
        return {label: cells for label, cells in found.items() if len(label) > 2}


def _number(cell: str) -> str:
    match = _NUMBER.search(cell)
    return normalize_number(match.group()) if match else ""


def parse_table(step: AgentStep) -> Table | None:
    """The first table of an output: at least two rows with as many cells as the line above them,
    separated by bars, tabs, wide spaces, commas or semicolons.
    """
    lines = [line.strip() for line in step.text[:20_000].splitlines()]
    for separator in _SEPARATORS:
        is_aligned = separator is _SEPARATORS[1]
        rows = [_cells(line, separator, is_aligned=is_aligned) for line in lines]
        for start, header in enumerate(rows[:_MAX_LINES]):
            if len(header) < _MIN_CELLS or "" in header:
                continue
            body = [
                row
                for row in rows[start + 1 : start + _MAX_TABLE_ROWS]
                if len(row) == len(header) and row[0]
            ]
            if len(body) >= _MIN_ROWS and sum(map(_is_numeric, body)) * 2 > len(body):
                return Table(step.event_id, header, tuple(body))
    return None


def _cells(line: str, separator: re.Pattern[str], *, is_aligned: bool) -> tuple[str, ...]:
    """The cells of a line. In an aligned table, more spaces are no empty cells."""
    cells = (cell.strip() for cell in separator.split(line.strip("| \t")[:_MAX_LINE]))
    return tuple(cell for cell in cells if cell or not is_aligned)


def _is_numeric(row: Sequence[str]) -> bool:
    return any(_number(cell) for cell in row[1:])


def find_misread_values(steps: Sequence[AgentStep]) -> tuple[Divergence, ...]:
    """Messages that give, next to the label of a row or column, a value that only other rows or
    columns of the table contain; at most three. Numbers of one or two digits are left out.
    """
    found: list[Divergence] = []
    tables: list[Table] = []
    for step in steps:
        if step.role is Role.OUTPUT and not step.exit_code:
            table = parse_table(step)
            tables = [*tables, table][-_TABLES_KEPT:] if table else tables
        elif step.is_message and tables and not step.code:
            for table in reversed(tables):
                if misread := _misread(step, table):
                    found.append(misread)
                    break
    return tuple(found[:3])


def _misread(step: AgentStep, table: Table) -> Divergence | None:
    lines, values = table.lines(), table.values()
    labels = sorted(lines, key=len, reverse=True)[:_MAX_TABLE_ROWS]
    columns = {name.casefold() for name in table.header[1:]}
    if not labels:
        return None
    pattern = re.compile(
        "|".join(rf"(?<!\w){re.escape(label)}(?!\w)" for label in labels), re.IGNORECASE
    )
    for line in step.text[:6_000].splitlines()[:_MAX_LINES]:
        for label, number in _pairs(line, pattern, columns):
            value = normalize_number(number)
            cells = lines[label.casefold()]
            in_line = {_number(cell) for cell in cells.values()}
            if len(value.replace(".", "")) < 3 or value not in values or value in in_line:
                continue
            crossing = _crossing(step.text, table, label, value)
            given = [cells[name] for name in crossing if _number(cells.get(name, ""))]
            if given:
                return Divergence(
                    "misread",
                    step.event_id,
                    step.agent,
                    stated=f"{label}: {number}",
                    found=given[0],
                    source_event_id=table.event_id,
                )
    return None


def _pairs(line: str, pattern: re.Pattern[str], columns: set[str]) -> list[tuple[str, str]]:
    """Labels with the number that follows. A number follows one label, or one of a row and one of a
    column; labels of the same kind in a row ("from 2018 to 2019") are left out.
    """
    labels = [(m.start(), m.end(), m.group()) for m in pattern.finditer(line)]
    numbers = [
        (m.start(), m.end(), m.group())
        for m in _NUMBER.finditer(line)
        if not any(start <= m.start() < end for start, end, _ in labels)
    ]
    pairs: list[tuple[str, str]] = []
    end_of_last = 0
    for start, end, number in numbers:
        named = [label for label in labels if end_of_last <= label[0] < start]
        kinds = [text.casefold() in columns for _, _, text in named]
        if named and len(kinds) == len(set(kinds)) and start - named[-1][1] <= _MAX_GAP:
            pairs += [(text, number) for _, _, text in named]
        end_of_last = end
    return pairs


def _crossing(text: str, table: Table, label: str, value: str) -> list[str]:
    """The labels of the other axis whose row or column contains the value: those that the message
    mentions, else all of them if there is one only.
    """
    if label.casefold() in [name.casefold() for name in table.header[1:]]:
        lines = [(row[0], row[1:]) for row in table.rows]
    else:
        columns = zip(*(row[1:] for row in table.rows), strict=True)
        lines = list(zip(table.header[1:], columns, strict=True))
    names = [name for name, cells in lines if value in map(_number, cells)]
    mentioned = [name for name in names if name.casefold() in text.casefold()]
    return mentioned or (names if len(names) == 1 else [])
