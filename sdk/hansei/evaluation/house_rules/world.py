"""The simulator: accepts calls, processes them at the end of the day, and compares the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hansei.evaluation.house_rules.conventions import COMPLAINTS, Convention, of_argument, of_tool
from hansei.evaluation.house_rules.domain import IDENTIFIERS, STEPS, Domain, Tables, Tool
from hansei.evaluation.house_rules.values import Argument, Unreadable

Action = tuple[str, dict[str, Any]]
"""A tool with arguments: what a task asks for, or what a call sends."""


class CallError(Exception):
    """A call that the tool refuses at once. The text is the answer to the agent."""


class _Ignored(Exception):
    """A call without effect. `convention` is None if it makes no sense by the documentation."""

    def __init__(self, convention: Convention | None, reason: str) -> None:
        super().__init__(reason)
        self.convention = convention


@dataclass(frozen=True)
class Entry:
    """A change that took effect. `values` has every argument of the tool."""

    tool: str
    values: Mapping[str, Any]

    @property
    def place(self) -> tuple[str, str]:
        """The tool and the object."""
        return self.tool, next(iter(self.values.values()))

    def __str__(self) -> str:
        return f"{self.tool} of {self.place[1]}"


@dataclass(frozen=True)
class Lost:
    """A call without effect, with the reason and the convention that it ignored."""

    place: tuple[str, str]
    reason: str
    convention: Convention | None


@dataclass
class World:
    """A desk with its objects and hidden conventions. Look-ups show the state of the morning."""

    domain: Domain
    tables: Tables
    conventions: Sequence[Convention]
    calls: list[Action] = field(default_factory=list)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Execute a call: what a look-up finds, or "accepted"."""
        tool = self.domain.tools.get(name)
        if tool is None:
            raise CallError(f"There is no tool {name!r}.")
        known = self._documented_names(tool, arguments)
        needed = {n for n, a in tool.arguments.items() if a.kind != "choice"}
        wrong = [n for n in arguments if n not in known] or sorted(needed - set(known.values()))
        if wrong:
            raise CallError(f"Unknown or missing argument: {', '.join(wrong)}.")
        if tool.role in ("read", "find", "list"):
            return self._look_up(tool, str(arguments[tool.first]))
        for key, argument in tool.arguments.items():
            if argument.kind == "ref":
                self.find(argument.table, arguments[key])
        self.calls.append((name, dict(arguments)))
        return "accepted"

    def _documented_names(self, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, str]:
        """Sent name → documented name. A renamed argument may be sent under both names, so only
        the outcome shows that the old one has no effect.
        """
        new = {c.value: c.argument for c in of_tool(self.conventions, tool.name, "renamed")}
        names = {name: name for name in tool.arguments} | new
        return {sent: names[sent] for sent in arguments if sent in names}

    def find(self, table: str, sent: Any) -> dict[str, Any]:
        """The object with this ID, number or code."""
        for record in self.tables[table].values():
            if str(sent) in (record[each] for each in IDENTIFIERS):
                return record
        raise CallError(f"There is no {table} {sent!r}.")

    def _look_up(self, tool: Tool, asked: str) -> Any:
        people, main = self.tables[self.domain.person], self.tables[self.domain.main]
        if tool.role == "find":
            return [p for p in people.values() if asked.lower() in p["name"].lower()]
        if tool.role == "list":
            person = self.find(self.domain.person, asked)["id"]
            return [r["id"] for r in main.values() if r[self.domain.person] == person]
        for table in self.tables.values():
            if asked in table:
                return table[asked]
        raise CallError(f"There is no record {asked!r}.")

    # The end of the day

    def close(self) -> tuple[list[Entry], list[Lost]]:
        """Process all calls in their order: what took effect, and what did not."""
        entries: list[Entry] = []
        lost: list[Lost] = []
        places = [self._place(call) for call in self.calls]
        for index, (name, sent) in enumerate(self.calls):
            tool = self.domain.tools[name]
            if tool.role not in STEPS:
                try:
                    entry = self._understand(tool, sent)
                    self._check_steps(entry, places[:index], places[index + 1 :])
                    entries.append(entry)
                except _Ignored as error:
                    lost.append(Lost(places[index], str(error), error.convention))
        return entries, lost

    def _place(self, call: Action) -> tuple[str, str]:
        first = self.domain.tools[call[0]].first
        table = self.domain.tools[call[0]].arguments[first].table
        return call[0], self.find(table, call[1][first])["id"]

    def _check_steps(
        self, entry: Entry, before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]]
    ) -> None:
        key = entry.place[1]
        for convention in of_tool(self.conventions, entry.tool):
            value, amount = convention.value, entry.values.get(convention.argument)
            step = value[0] if convention.kind == "above" else value
            if convention.kind == "split" and amount > value:
                reason = f"was rejected, {convention.argument} is too high for one call"
                raise _Ignored(convention, reason)
            if (
                (convention.kind == "before" and (step, key) not in before)
                or (convention.kind == "after" and (step, key) not in after)
                or (convention.kind == "above" and amount > value[1] and (step, key) not in before)
            ):
                raise _Ignored(convention, COMPLAINTS[self.domain.tools[step].role])

    def _understand(self, tool: Tool, sent: Mapping[str, Any]) -> Entry:
        """What a call means."""
        values: dict[str, Any] = {}
        for name, argument in tool.arguments.items():
            own = next(of_argument(self.conventions, tool.name, name), None)
            sent_name = own.value if own and own.kind == "renamed" else name
            if sent_name in sent:
                values[name] = self._meaning(own, argument, sent[sent_name])
            elif argument.kind == "choice":
                values[name] = argument.options[0]
            else:
                raise _Ignored(own, f"was entered without '{sent_name}'")
        return Entry(tool.name, values)

    def _meaning(self, convention: Convention | None, argument: Argument, sent: Any) -> Any:
        record = self.find(argument.table, sent) if argument.kind == "ref" else {}
        try:
            if convention is not None:
                return convention.decode(argument, sent, record)
            if argument.kind == "ref" and str(sent) != record["id"]:
                raise Unreadable(f"{sent!r} is not an ID")
            return record["id"] if argument.kind == "ref" else argument.read(sent)
        except Unreadable as error:
            raise _Ignored(convention, f"was not booked, {error}") from None

    # The right calls

    def right_calls(self, actions: Iterable[Action]) -> list[Action]:
        """The calls that make the actions happen."""
        calls: list[Action] = []
        for name, values in actions:
            for part in self._parts(name, values):
                for call in self._calls_of(self.domain.tools[name], part):
                    role = self.domain.tools[call[0]].role
                    if role not in ("lock", "refresh", "approve") or call not in calls:
                        calls.append(call)
        return calls

    def _parts(self, tool: str, values: dict[str, Any]) -> list[dict[str, Any]]:
        for convention in of_tool(self.conventions, tool, "split"):
            name, limit = convention.argument, convention.value
            count, rest = divmod(values[name], limit)
            return [values | {name: size} for size in [limit] * count + [rest] * (rest > 0)]
        return [values]

    def _calls_of(self, tool: Tool, values: dict[str, Any]) -> list[Action]:
        before: list[Action] = []
        after: list[Action] = []
        sent = dict(values)
        record = self.tables[tool.arguments[tool.first].table][values[tool.first]]
        on_record = {self.domain.main: record["id"]}
        for convention in of_tool(self.conventions, tool.name):
            name, value = convention.argument, convention.value
            if convention.kind == "before":
                before.append((value, on_record))
            elif convention.kind == "after":
                after.append((value, on_record))
            elif convention.kind == "above":
                before += [(value[0], on_record)] * (values[name] > value[1])
            elif convention.kind == "also":
                message = {self.domain.person: record[self.domain.person], "template": value[1]}
                after += self._calls_of(self.domain.tools[value[0]], message)
            elif convention.kind == "renamed":
                sent[value] = sent.pop(name)
            elif convention.kind != "split":
                table = self.tables.get(tool.arguments[name].table, {})
                named = table[values[name]] if convention.kind == "identifier" else record
                sent[name] = convention.encode(values.get(name), named)
        return [*before, (tool.name, {k: v for k, v in sent.items() if v is not None}), *after]


def compare(
    conventions: Sequence[Convention],
    wanted: Sequence[Entry],
    found: Sequence[Entry],
    lost: Sequence[Lost],
) -> tuple[list[str], list[Convention | None]]:
    """What is wrong in the outcome, and which conventions were ignored."""
    missing = _joined(wanted, conventions)
    extra: list[Entry] = []
    for entry in _joined(found, conventions):
        if entry in missing:
            missing.remove(entry)
        else:
            extra.append(entry)
    texts: list[str] = []
    ignored: list[Convention | None] = []
    for entry in missing:
        near = next((each for each in extra if each.place == entry.place), None)
        reason = next((each for each in lost if each.place == entry.place), None)
        if near is not None:
            extra.remove(near)
            for name in (n for n, value in entry.values.items() if value != near.values[n]):
                is_, should = _show(near.values[name]), _show(entry.values[name])
                texts.append(f"{entry}: {name} is {is_} instead of {should}.")
                ignored += of_argument(conventions, entry.tool, name)
        elif reason is not None:
            texts.append(f"{entry} {reason.reason}.")
            ignored.append(reason.convention)
        else:
            values = ", ".join(_show(v) for v in list(entry.values.values())[1:])
            texts.append(f"{entry} is missing ({values}).")
            ignored += [c for c in conventions if c.kind == "also" and c.value[0] == entry.tool]
    return [*texts, *(f"{entry} was not asked for." for entry in extra)], ignored


def _joined(entries: Sequence[Entry], conventions: Sequence[Convention]) -> list[Entry]:
    """Entries, with the parts of a split one added up: any division is right."""
    joined: list[Entry] = []
    for entry in entries:
        for convention in of_tool(conventions, entry.tool, "split"):
            name = convention.argument
            for other in [e for e in joined if e.place == entry.place]:
                joined.remove(other)
                total = other.values[name] + entry.values[name]
                entry = Entry(entry.tool, {**entry.values, name: total})
        joined.append(entry)
    return joined


def _show(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
