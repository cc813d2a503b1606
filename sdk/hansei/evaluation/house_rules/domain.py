"""A desk: objects, tools with documentation, and sentences for tasks. `domains.toml` has three."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hansei.evaluation.house_rules.values import FIRST_NAMES, LAST_NAMES, Argument

IDENTIFIERS = ("id", "number", "code")
"""Every object has three names. The documentation uses `id`."""
STEPS = ("lock", "refresh", "approve", "confirm", "publish")
NUMBER = re.compile(r"(\d+)-(\d+)/(\d+) (\w+)$")
POSITION = re.compile(r"#(\d+)-(\d+)$")
MAIN_COUNT, OTHER_COUNT = 48, 24

Tables = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class Tool:
    """`role`: read, find or list; write (changes something); or a step around a change."""

    name: str
    about: str
    arguments: Mapping[str, Argument]
    sentences: tuple[str, ...] = ()
    role: str = "write"

    @property
    def first(self) -> str:
        """The argument that names the object of the call."""
        return next(iter(self.arguments))

    def __str__(self) -> str:
        shown = [
            f"{name}={'|'.join(a.options)}" if a.kind == "choice" else name
            for name, a in self.arguments.items()
        ]
        return f"{self.name}({', '.join(shown)}): {self.about}"


class Domain:
    """`main` is the table that most tools change, `person` those whom its objects belong to."""

    def __init__(self, name: str, data: Mapping[str, Any]) -> None:
        self.name, self.place, self.notify = name, data["place"], data["notify"]
        self.main, self.person = data["main"], data["person"]
        self.types = {table: tuple(words[1:]) for table, words in data["tables"].items()}
        self._prefixes = {table: words[0] for table, words in data["tables"].items()}
        main, person = (Argument("ref", table=table) for table in (self.main, self.person))
        lookups = (
            Tool("look_up", "returns a record", {"id": Argument("text")}, role="read"),
            Tool(f"find_{self.person}", "by name", {"name": Argument("text")}, role="find"),
            Tool(f"list_{self.main}s", "returns IDs", {self.person: person}, role="list"),
        )
        self.write_tools = tuple(
            Tool(name, about, dict(map(self._argument, spec.split(", "))), tuple(sentences))
            for name, (about, spec, *sentences) in data["tools"].items()
        )
        steps = [
            Tool(tool, about, {self.main: main}, role=role)
            for role, (tool, about) in data["steps"].items()
        ]
        self.step = {tool.role: tool.name for tool in steps}
        self.tools = {tool.name: tool for tool in (*lookups, *steps, *self.write_tools)}

    def _argument(self, spec: str) -> tuple[str, Argument]:
        name, _, kind = spec.partition(" ")
        if found := NUMBER.match(kind):
            low, high, step = map(int, found.groups()[:3])
            return name, Argument("number", found[4], low, high, step)
        if found := POSITION.match(kind):
            return name, Argument("position", low=int(found[1]), high=int(found[2]))
        if kind:
            options = tuple(option.strip("'") for option in kind.split("|"))
            return name, Argument("text" if "'" in kind else "choice", options=options)
        is_table = name in self.types
        return name, Argument("ref" if is_table else name, table=name if is_table else "")

    def draw_tables(self, random_: random.Random) -> Tables:
        """The objects of a benchmark."""
        tables: Tables = {}
        for table, prefix in self._prefixes.items():
            count = MAIN_COUNT if table == self.main else OTHER_COUNT
            types = list(self.types[table]) * count
            tables[table] = {
                key: {
                    "id": key,
                    "number": str(number),
                    "code": "".join(random_.choice("BCDFGHKMNPRT") for _ in range(4)),
                    "type": type_,
                }
                for key, number, type_ in zip(
                    [f"{prefix}{index + 101}" for index in range(count)],
                    random_.sample(range(1000, 9999), count),
                    random_.sample(types[:count], count),
                    strict=True,
                )
            }
        for record in tables[self.person].values():
            record["name"] = f"{random_.choice(FIRST_NAMES)} {random_.choice(LAST_NAMES)}"
        for record in tables[self.main].values():
            record[self.person] = random_.choice(sorted(tables[self.person]))
        return tables


def _load() -> dict[str, Domain]:
    text = (Path(__file__).parent / "domains.toml").read_text(encoding="utf8")
    return {name: Domain(name, data) for name, data in tomllib.loads(text).items()}


DOMAINS = _load()
