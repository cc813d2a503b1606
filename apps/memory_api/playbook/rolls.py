"""One piece of advice for a family of tools: the advice, then a roll of where it was needed.

    Before a call that changes something, never guess an argument. Guessed wrong: `book` (`date`,
    `payment_id`), `cancel`.

Two texts with the same advice become one with both rolls: sentences of the same label are joined,
names and what stands in brackets behind them sorted, so that the order of learning does not matter.
A Japanese text has `：`, `、`, `（）` and `。` instead. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MOST_NAMES = 12
MOST_DETAILS = 6
"""A roll that is full says enough: what comes later is a witness more."""

_PLAIN = re.compile(r"[^`\n]{1,80}")
_NAME = rf"`{_PLAIN.pattern}`"
_ENTRY = rf"{_NAME}(?: \({_NAME}(?:, {_NAME})*\)|（{_NAME}(?:、{_NAME})*）)?"
_ROLL = re.compile(
    rf"(?:(?<=[.!?] )(?P<label>[^.!?:`\n]{{2,60}}): (?P<roll>{_ENTRY}(?:, {_ENTRY})*)\.(?: |$)"
    rf"|(?<=。)(?P<ja_label>[^。：`\n]{{1,30}})：(?P<ja_roll>{_ENTRY}(?:、{_ENTRY})*)。)"
)
Details = frozenset[str]
Roll = Mapping[str, Details]
"""Name → what belongs to it, both without the marks around them."""


@dataclass(frozen=True)
class Advice:
    """A text with at least one roll, taken apart."""

    head: str
    rolls: Mapping[str, Roll]
    """By label."""

    def __str__(self) -> str:
        japanese = self.head.endswith("。")
        said = [_sentence(label, self.rolls[label], japanese) for label in sorted(self.rolls)]
        return ("" if japanese else " ").join((self.head, *said))


def with_roll(head: str, label: str, entries: Mapping[str, Iterable[str]]) -> str:
    """`head`, whole sentences, with one roll; `head` alone when no entry can be shown."""
    roll = {
        name: frozenset(filter(_PLAIN.fullmatch, details))
        for name, details in entries.items()
        if _PLAIN.fullmatch(name)
    }
    return str(Advice(head, {label: roll})) if roll else head


def read(text: str) -> Advice | None:
    """A text taken apart; None when it does not end in a roll."""
    text = text.strip()
    found = list(_ROLL.finditer(text))
    while found and "".join(m[0] for m in found) != text[found[0].start() :]:
        found.pop(0)
    if not found:
        return None
    rolls: dict[str, Roll] = {}
    for match in found:
        label = match["label"] or match["ja_label"]
        entries = re.findall(_ENTRY, match["roll"] or match["ja_roll"])
        roll = {name: frozenset(rest) for name, *rest in (_names(entry) for entry in entries)}
        rolls[label] = _union(rolls.get(label, {}), roll)
    return Advice(text[: found[0].start()].rstrip(), rolls)


def head_of(text: str) -> str:
    """The advice itself, without its rolls."""
    found = read(text)
    return found.head if found else text


def join(ours: str, theirs: str) -> str | None:
    """What `ours` says with what `theirs` adds to its rolls; `ours` itself when that is nothing,
    None when they are not the same advice.
    """
    first, second = read(ours), read(theirs)
    if first is None or second is None or _folded(first.head) != _folded(second.head):
        return None
    labels = first.rolls.keys() | second.rolls.keys()
    rolls = {n: _union(first.rolls.get(n, {}), second.rolls.get(n, {})) for n in labels}
    return ours if rolls == first.rolls else str(Advice(first.head, rolls))


def _union(ours: Roll, theirs: Roll) -> Roll:
    """Both, as far as there is room; what is there stays."""
    room = max(0, MOST_NAMES - len(ours))
    new = sorted(theirs.keys() - ours.keys())[:room]
    return {name: _both(ours.get(name), theirs.get(name)) for name in (*ours, *new)}


def _both(ours: Details | None, theirs: Details | None) -> Details:
    have = ours or frozenset()
    room = max(0, MOST_DETAILS - len(have))
    return have | frozenset(sorted((theirs or frozenset()) - have)[:room])


def _sentence(label: str, roll: Roll, japanese: bool) -> str:
    between, colon, end = ("、", "：", "。") if japanese else (", ", ": ", ".")
    before, after = ("（", "）") if japanese else (" (", ")")
    entries: list[str] = []
    for name in sorted(roll):
        details = between.join(f"`{detail}`" for detail in sorted(roll[name]))
        entries.append(f"`{name}`{before}{details}{after}" if details else f"`{name}`")
    return f"{label}{colon}{between.join(entries)}{end}"


def _names(entry: str) -> list[str]:
    return [name.strip("`") for name in re.findall(_NAME, entry)]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
