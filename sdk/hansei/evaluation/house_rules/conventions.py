"""Hidden conventions: what a tool expects beyond its documentation.

A convention changes one argument of one tool (its unit, its format, its value), or demands another
call before or after it. No tool reports that a convention was ignored; only the outcome shows it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from hansei.evaluation.house_rules.domain import Domain, Tool
from hansei.evaluation.house_rules.values import Argument, Unreadable, read_moment, to_number

UNITS = {
    "eur": (("cents", 100), ("thousands of euros", 0.001)),
    "kg": (("grams", 1000), ("tonnes", 0.001)),
    "km": (("meters", 1000), ("units of 10 km", 0.1)),
    "liters": (("milliliters", 1000), ("hectoliters", 0.01)),
    "minutes": (("hours", 1 / 60), ("seconds", 60)),
    "pieces": (("pairs", 0.5), ("dozens", 1 / 12)),
}
DATE_FORMATS = {
    "DD.MM.YYYY": "%d.%m.%Y",
    "MM/DD/YYYY": "%m/%d/%Y",
    "YYYYMMDD": "%Y%m%d",
    "DD-MM-YY": "%d-%m-%y",
}
TIME_FORMATS = {"HHMM": "%H%M", "HH.MM": "%H.%M", "h:MM AM/PM": "%I:%M %p"}
NAME_FORMATS = ("LAST/FIRST", "Last, First")
OTHER_WORDS = {
    "amount": ("value", "total"),
    "weight": ("mass", "load"),
    "quantity": ("count", "units"),
    "duration": ("length", "time_needed"),
    "distance": ("mileage", "way"),
    "volume": ("fill", "capacity"),
    "date": ("day", "on"),
    "time": ("hour", "at"),
    "name": ("person", "holder"),
    "row": ("line", "place"),
    "bay": ("slot", "place"),
    "gate": ("ramp", "door"),
}
VARIED = {"number", "date", "name"}
"""Kinds of arguments with enough values for hundreds of different tasks."""
BEFORE, AFTER = ("lock", "refresh"), ("confirm", "publish")
STEP_KINDS = ("before", "after", "also", "above", "split")
COMPLAINTS = {
    "lock": "was not kept, the record was open for other users",
    "refresh": "was not kept, the record was out of date",
    "approve": "is waiting, nobody approved it",
    "confirm": "is still a draft",
    "publish": "is not on the papers",
}
"""Role of the missing step → what became of the change."""


@dataclass(frozen=True)
class Convention:
    """`value` is the parameter that a seed draws, for example the unit."""

    kind: str
    tool: str
    argument: str
    value: Any

    @property
    def slots(self) -> set[tuple[str, str]]:
        """What it takes of a tool: an argument, the steps around the call, or both. Two
        conventions of one benchmark never share a slot.
        """
        names: list[str] = []
        if self.kind in STEP_KINDS:
            names.append("")
        if self.kind not in ("before", "after", "also"):
            names.append(self.argument)
        return {(self.tool, name) for name in names}

    def __str__(self) -> str:
        return SENTENCES[self.kind].format(tool=self.tool, argument=self.argument, value=self.value)

    def encode(self, value: Any, record: dict[str, Any]) -> Any:
        """What the right call sends for the value of a task. `record`: the object of the call, or
        for `identifier` the object that is named.
        """
        return ENCODERS[self.kind](self.value, value, record)

    def decode(self, argument: Argument, sent: Any, record: dict[str, Any]) -> Any:
        """What the simulator understands."""
        decoder = DECODERS.get(self.kind)
        return decoder(self.value, sent, record) if decoder else argument.read(sent)


SENTENCES = {
    "unit": "`{tool}` takes `{argument}` in {value[0]}.",
    "sign": "`{tool}` takes `{argument}` as a negative number.",
    "round": "`{tool}` takes `{argument}` rounded up to a multiple of {value}.",
    "date_format": "`{tool}` takes `{argument}` as {value}.",
    "time_format": "`{tool}` takes `{argument}` as {value}.",
    "name_format": "`{tool}` takes `{argument}` as {value}.",
    "date_shift": "`{tool}` takes as `{argument}` the {value}.",
    "weekend": "`{tool}`: if `{argument}` is a Saturday or Sunday, take the {value}.",
    "time_zone": "`{tool}` takes `{argument}` minus {value} hour(s).",
    "identifier": "`{tool}` takes as `{argument}` the {value} of the object, not its ID.",
    "from_zero": "`{tool}` counts `{argument}` from 0: send one less.",
    "choice": "`{tool}` needs `{argument}`='{value}'.",
    "category": "`{tool}` needs `{argument}`='{value[1]}' if the type of the object is {value[0]}.",
    "split": "`{tool}` takes `{argument}` up to {value} in one call; send several calls.",
    "renamed": "`{tool}` takes `{value}` instead of `{argument}`.",
    "before": "Call `{value}` before `{tool}`.",
    "after": "Call `{value}` after `{tool}`.",
    "above": "If `{argument}` is above {value[1]}, call `{value[0]}` before `{tool}`.",
    "also": "After `{tool}`, call `{value[0]}` with the template '{value[1]}' for the person.",
}


def _to_multiple(step: int, value: float, _: Any) -> float:
    return math.ceil(value / step) * step


def _shift(which: str, value: str, _: Any) -> str:
    days = 1 if which == "day after" else -1
    return (date.fromisoformat(value) + timedelta(days=days)).isoformat()


def _off_weekend(which: str, value: str, _: Any) -> str:
    day = date.fromisoformat(value)
    over = day.weekday() - 4
    days = 0 if over <= 0 else (3 - over if which == "following Monday" else -over)
    return (day + timedelta(days=days)).isoformat()


def _zone(hours: int, value: str) -> str:
    hour, minute = map(int, value.split(":"))
    return f"{(hour + hours) % 24:02d}:{minute:02d}"


def _to_name(form: str, value: str, _: Any) -> str:
    first, last = value.split(" ", 1)
    return f"{last}/{first}".upper() if "/" in form else f"{last}, {first}"


def _from_name(form: str, sent: Any, _: Any) -> str:
    last, mark, first = str(sent).partition("/" if "/" in form else ",")
    if not mark:
        raise Unreadable(f"{sent!r}: the family name was not found")
    return f"{first.strip()} {last.strip()}".title()


def _from_identifier(which: str, sent: Any, record: dict[str, Any]) -> str:
    if str(sent) != record[which]:
        raise Unreadable(f"{sent!r} is not a known {which}")
    return record["id"]


Coder = Callable[[Any, Any, Any], Any]
ENCODERS: dict[str, Coder] = {
    "unit": lambda unit, value, _: round(value * unit[1], 6),
    "sign": lambda _, value, __: -value,
    "round": _to_multiple,
    "date_format": lambda form, value, _: date.fromisoformat(value).strftime(DATE_FORMATS[form]),
    "time_format": lambda form, value, _: read_moment(value, "%H:%M", TIME_FORMATS[form]),
    "name_format": _to_name,
    "date_shift": _shift,
    "weekend": _off_weekend,
    "time_zone": lambda hours, value, _: _zone(-hours, value),
    "identifier": lambda which, _, record: record[which],
    "from_zero": lambda _, value, __: value - 1,
    "choice": lambda option, _, __: option,
    "category": lambda rule, value, record: rule[1] if record["type"] == rule[0] else value,
}
DECODERS: dict[str, Coder] = {
    "unit": lambda unit, sent, _: round(to_number(sent) / unit[1], 1),
    "sign": lambda _, sent, __: -to_number(sent),
    "date_format": lambda form, sent, _: read_moment(str(sent), DATE_FORMATS[form], "%Y-%m-%d"),
    "time_format": lambda form, sent, _: read_moment(str(sent), TIME_FORMATS[form], "%H:%M"),
    "name_format": _from_name,
    "time_zone": lambda hours, sent, _: _zone(hours, Argument("time").read(sent)),
    "identifier": _from_identifier,
    "from_zero": lambda _, sent, __: int(to_number(sent)) + 1,
}
"""Kinds that are missing here change what is asked for, not how it is written."""


def options(kind: str, domain: Domain, tool: Tool, name: str) -> Sequence[Any]:
    """The parameters that a convention may have; none if it does not fit the argument."""
    argument = tool.arguments[name]
    if kind in ("before", "after", "above", "also"):
        return _options_of_step(kind, domain, tool, name)
    if kind in ("choice", "category") and argument.kind == "choice":
        others = argument.options[1:]
        table = tool.arguments[tool.first].table
        types = domain.types[table]
        return others if kind == "choice" else [(t, other) for t in types for other in others]
    if kind == "renamed":
        return OTHER_WORDS.get(name, ())
    values: dict[tuple[str, str], Sequence[Any]] = {
        ("unit", "number"): UNITS.get(argument.unit, ()),
        ("sign", "number"): ("negative",) if argument.unit == "eur" else (),
        ("round", "number"): {"pieces": (6, 8, 12), "km": (100, 250), "eur": (25, 50)}.get(
            argument.unit, ()
        ),
        ("split", "number"): _middle(argument) if argument.unit in ("pieces", "eur") else (),
        ("date_format", "date"): tuple(DATE_FORMATS),
        ("date_shift", "date"): ("day after", "day before"),
        ("weekend", "date"): ("following Monday", "Friday before"),
        ("time_format", "time"): tuple(TIME_FORMATS),
        ("time_zone", "time"): (1, 2, -1),
        ("name_format", "name"): NAME_FORMATS,
        ("from_zero", "position"): ("from 0",),
        ("identifier", "ref"): ("number", "code"),
    }
    return values.get((kind, argument.kind), ())


def _middle(argument: Argument) -> Sequence[int]:
    """Round limits in the middle of the range of a number."""
    step = 5 if argument.high < 100 else 50
    width = argument.high - argument.low
    return [int((argument.low + width * share) / step) * step for share in (0.35, 0.5)]


def _options_of_step(kind: str, domain: Domain, tool: Tool, name: str) -> Sequence[Any]:
    argument, first = tool.arguments[name], tool.first
    if first != domain.main or (name != first and kind != "above") or tool.name == "add_note":
        return ()
    if kind == "above":
        limits = _middle(argument) if argument.kind == "number" else ()
        return [(domain.step["approve"], limit) for limit in limits]
    if kind == "also":
        templates = domain.tools[domain.notify].arguments["template"].options
        return [(domain.notify, template) for template in templates]
    return [domain.step[role] for role in (BEFORE if kind == "before" else AFTER)]


def options_of(convention: Convention, domain: Domain) -> Sequence[Any]:
    """The parameters that it can have."""
    tool = domain.tools[convention.tool]
    return options(convention.kind, domain, tool, convention.argument)


def pool(domain: Domain) -> list[Convention]:
    """Every convention that a seed can draw, with the first of its parameters."""
    return [
        Convention(kind, tool.name, name, found[0])
        for kind in SENTENCES
        for tool in domain.write_tools
        for name in tool.arguments
        if (found := options(kind, domain, tool, name))
    ]


def draw(domain: Domain, count: int, random_: random.Random, *, renamed: bool) -> list[Convention]:
    """Conventions of a benchmark: of as many kinds and tools as possible, at most one a slot, and
    none of one tool, which is left for controls. With `renamed`, the last one renames an argument.
    """
    varied = [t for t in domain.write_tools if {a.kind for a in t.arguments.values()} & VARIED]
    spared = {random_.choice([t.name for t in varied if len(t.arguments) <= 3])}
    candidates = [c for c in pool(domain) if c.tool not in spared]
    random_.shuffle(candidates)
    last = [next(c for c in candidates if c.kind == "renamed")] if renamed else []
    spared |= {c.tool for c in last}
    candidates = [c for c in candidates if c.kind != "renamed" and c.tool not in spared]
    chosen: list[Convention] = []
    while len(chosen) < count - len(last):
        taken, tools = {slot for c in chosen for slot in c.slots}, [c.tool for c in chosen]
        kinds = [c.kind for c in chosen]
        free = [c for c in candidates if not c.slots & taken]
        chosen.append(min(free, key=lambda c: (kinds.count(c.kind), tools.count(c.tool))))
    chosen += last
    return [replace(c, value=random_.choice(options_of(c, domain))) for c in chosen]


def of_tool(conventions: Sequence[Convention], tool: str, *kinds: str) -> Iterator[Convention]:
    """The conventions of a tool, optionally only of some kinds."""
    return (c for c in conventions if c.tool == tool and (not kinds or c.kind in kinds))


def of_argument(conventions: Sequence[Convention], tool: str, name: str) -> Iterator[Convention]:
    """The convention that changes an argument, if there is one."""
    return (
        c for c in of_tool(conventions, tool) if c.argument == name and c.kind not in STEP_KINDS
    )
