"""Types of arguments: what a task says, and what a call means by the documentation."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

FIRST_DAY = date(2031, 1, 6)
FIRST_NAMES = (
    "Ada",
    "Ben",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gia",
    "Hugo",
    "Ines",
    "Jon",
    "Kira",
    "Leo",
)
LAST_NAMES = (
    "Krol",
    "Ito",
    "Marx",
    "Osei",
    "Lund",
    "Roy",
    "Rossi",
    "Bay",
    "Weiss",
    "Silva",
    "Dahl",
)


class Unreadable(Exception):
    """A value that the simulator cannot read. The text says why."""


@dataclass(frozen=True)
class Argument:
    """`kind`: ref, number, date, time, name, position, choice (optional, the first option is the
    default) or text. A number has a unit, a ref the table of its object.
    """

    kind: str
    unit: str = ""
    low: int = 0
    high: int = 0
    step: int = 1
    options: tuple[str, ...] = ()
    table: str = ""

    def draw(self, random_: random.Random, tables: Mapping[str, Mapping[str, Any]]) -> Any:
        """A value for a task; None for a choice, because tasks leave them to the desk."""
        if self.kind == "ref":
            return random_.choice(sorted(tables[self.table]))
        if self.kind in ("number", "position"):
            return self.low + self.step * random_.randrange((self.high - self.low) // self.step + 1)
        if self.kind == "date":
            return (FIRST_DAY + timedelta(days=random_.randrange(360))).isoformat()
        if self.kind == "time":
            return f"{random_.randrange(7, 20):02d}:{random_.choice((0, 10, 15, 30, 45)):02d}"
        if self.kind == "name":
            return f"{random_.choice(FIRST_NAMES)} {random_.choice(LAST_NAMES)}"
        return random_.choice(self.options) if self.kind == "text" else None

    def words(self, value: Any) -> str:
        """A value as a task says it."""
        if self.kind == "number":
            return f"{value} {'euros' if self.unit == 'eur' else self.unit}"
        if self.kind == "date":
            day = date.fromisoformat(value)
            return f"{day.day} {day:%B} {day.year}"
        return str(value)

    def read(self, sent: Any) -> Any:
        """The meaning of a value in its documented form."""
        text = " ".join(str(sent).split())
        if self.kind in ("number", "position"):
            return to_number(sent)
        if self.kind in ("date", "time"):
            form = "%Y-%m-%d" if self.kind == "date" else "%H:%M"
            return read_moment(text, form, form)
        if (self.kind == "choice" and text not in self.options) or (
            self.kind == "name" and not text.replace(" ", "").isalpha()
        ):
            raise Unreadable(f"{sent!r} could not be read")
        return text


def read_moment(text: str, form: str, into: str) -> str:
    """A date or a time in another format."""
    try:
        return datetime.strptime(text.upper(), form).strftime(into)
    except ValueError:
        example = datetime(2030, 11, 27, 16, 20).strftime(form)
        raise Unreadable(f"{text!r} could not be read, other entries look like {example}") from None


def to_number(sent: Any) -> float:
    """A number, also from text."""
    try:
        return float(sent)
    except (TypeError, ValueError):
        raise Unreadable(f"{sent!r} is not a number") from None
