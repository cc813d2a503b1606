"""The rows of an answer, and the words and numbers of its sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from memory_api.console.rendering import format_day, format_number, format_share, format_usd
from memory_api.console.translations import Translation

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class AnswerRows:
    """The rows of an answer, and how its sentence writes numbers. `first` and `last` are the days
    of the period, both included.
    """

    rows: Rows
    first: date
    last: date
    translation: Translation

    def sentence(self, text: str, **values: str | int) -> str:
        """A translated sentence. Whole numbers are formatted."""
        shown = {
            name: self.number(value) if isinstance(value, int) else value
            for name, value in values.items()
        }
        return self.translation.gettext(text) % shown

    def number(self, value: float, digits: int = 0) -> str:
        return format_number(value, digits)

    def percent(self, share: float) -> str:
        return format_share(share)

    def usd(self, value: float) -> str:
        return format_usd(value)

    def day(self, value: date) -> str:
        return format_day(value, self.translation)

    def total(self, column: str) -> int:
        return sum(int(row[column] or 0) for row in self.rows)

    def sum_usd(self, column: str) -> float:
        return sum(float(row[column] or 0) for row in self.rows)

    def count(self, column: str, *values: Any) -> int:
        return sum(row[column] in values for row in self.rows)


def ends(rows: Rows, column: str) -> tuple[Rows, Rows]:
    """The rows of the first and of the last day or month of each playbook."""
    by_playbook: dict[Any, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row[column]):
        by_playbook.setdefault(row["playbook"], []).append(row)
    groups = by_playbook.values()
    return [group[0] for group in groups], [group[-1] for group in groups]
