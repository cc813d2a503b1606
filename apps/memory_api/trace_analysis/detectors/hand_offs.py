"""Detects what changes between agents: file names, numbers and units, values of the task, sources
that nobody opened, outputs that were read in part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.detectors.claims import Conversation
from memory_api.trace_analysis.structure import Divergence
from memory_api.trace_analysis.team import AgentStep, Role, addressees
from memory_api.trace_analysis.values import (
    missing_values,
    normalize_number,
    numbers_in,
)
from memory_api.trace_analysis.vocabulary import Vocabulary

_FILE = re.compile(
    r"(?<![\w@])[\w\-]{1,80}\.(?:csv|tsv|txt|jsonl?|xlsx?|parquet|pdf|md|html?|xml|ya?ml|db|sqlite|"
    r"log|zip|gz|png|jpe?g|gif|svg|mp[34]|wav|docx?|pptx?|py|js|ts|ipynb|sql|dat|cfg|ini|toml)\b"
)
_VERSION = re.compile(r"v?\d*")
_VERSION_WORDS = {"final", "new", "old", "fixed", "clean", "cleaned", "raw", "copy", "tmp"}
_LONG_NUMBER = re.compile(r"(?<![\w.,:/\-])\d[\d,]{2,}(?:\.\d+)?(?![\w:/\-])")
_YEAR = re.compile(r"(?<![\w.,/\-])(?:1[5-9]|20)\d\d(?![\w/\-])")
_COMPARED = re.compile(r"[<>]=?\s*(\d+(?:\.\d+)?)")
_UNITS = {
    "length": "mm cm m km in ft feet foot mi mile miles meter meters metre metres kilometer "
    "kilometers kilometre kilometres yd yards",
    "mass": "mg g kg t lb lbs pounds tons tonnes kilograms grams",
    "time": "ms s sec seconds min minutes h hours days weeks months years",
    "money": "usd eur gbp jpy chf cny inr aud cad dollars euros pounds",
    "energy": "wh kwh mwh gwh twh j kj mj gj kcal cal",
    "data": "kb mb gb tb kib mib gib",
    "temperature": "°c °f celsius fahrenheit kelvin",
    "scale": "thousand million billion trillion",
}
_KIND_OF_UNIT = {unit: kind for kind, units in _UNITS.items() for unit in units.split()}
_MEASURE = re.compile(
    r"(?<![\w.,])(\d+(?:[.,]\d+)*)\s?("
    + "|".join(sorted(map(re.escape, _KIND_OF_UNIT), key=len, reverse=True))
    + r")(?!\w)",
    re.IGNORECASE,
)
_SPELLINGS = (
    {"m", "meter", "meters", "metre", "metres"},
    {"km", "kilometer", "kilometers", "kilometre", "kilometres"},
    {"ft", "feet", "foot"},
    {"mi", "mile", "miles"},
    {"s", "sec", "seconds"},
    {"min", "minutes"},
    {"h", "hours"},
    {"kg", "kilograms"},
    {"g", "grams"},
    {"t", "tons", "tonnes"},
    {"lb", "lbs", "pounds"},
    {"gbp", "pounds"},
    {"usd", "dollars"},
    {"eur", "euros"},
    {"°c", "celsius"},
    {"°f", "fahrenheit"},
)
_LISTED = re.compile(r"^\s*\[?(\d{1,2})[\].)]\s+(\S.{4,160})$", re.MULTILINE)
_REFERENCE = re.compile(r"\[(\d{1,2})\]")
_MIN_LISTED, _MIN_TYPED, _MIN_FILES = 2, 5, 3
_PATTERN = re.compile(r"\*\.|\bglob\b|listdir|iterdir|\bos\.walk|\bfor \w+ in\b")
_LITERAL = re.compile(r"\"[^\"\n]{2,80}\"|'[^'\n]{2,80}'|(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
_MAX_PER_KIND = 3


def find_divergences(run: Conversation, vocabulary: Vocabulary) -> tuple[Divergence, ...]:
    """At most three of a kind, in the order of their steps."""
    detectors = (
        _stale_files(run),
        _altered_values(run),
        _substituted_values(run),
        _partial_views(run, vocabulary),
        _unopened_sources(run),
        _unread_files(run.steps),
        _typed_in_data(run),
    )
    found = [item for detector in detectors for item in islice(detector, _MAX_PER_KIND)]
    position = {step.event_id: step.position for step in run.steps}
    return tuple(sorted(found, key=lambda item: position[item.event_id]))


def file_names(text: str) -> list[str]:
    """Names of files in a text without their folders, in order."""
    return list(dict.fromkeys(_FILE.findall(text[:20_000])))


def _stale_files(run: Conversation) -> Iterator[Divergence]:
    """The first step that names a file, and not the newer file of the same family. Files that the
    task names are left out.
    """
    newest: dict[str, tuple[str, AgentStep]] = {}
    seen = set(file_names(run.task.text))
    given = frozenset(seen)
    for step in run.steps:
        names = file_names(step.text)
        if step.is_blameable:
            for name in names:
                latest, source = newest.get(_family(name), (name, step))
                is_newer = latest != name and source.agent != step.agent
                if is_newer and name in seen - given and latest not in names:
                    yield Divergence(
                        "stale_file",
                        step.event_id,
                        step.agent,
                        stated=name,
                        found=latest,
                        source_event_id=source.event_id,
                    )
                    return
        for name in names:
            if name not in seen:
                seen.add(name)
                newest[_family(name)] = (name, step)


def _family(name: str) -> str:
    """A file name without its version: `sales_v1.csv`, `sales-2.csv` and `sales_final.csv` are one
    family.
    """
    stem, _, ending = name.casefold().rpartition(".")
    words = re.split(r"[\W_]", stem)
    while len(words) > 1 and (words[-1] in _VERSION_WORDS or _VERSION.fullmatch(words[-1])):
        words.pop()
    return f"{'_'.join(words).rstrip('0123456789')}.{ending}"


def _altered_values(run: Conversation) -> Iterator[Divergence]:
    """Messages with a number that differs in one digit, or in the order of its digits, from a
    number of an earlier event, or that has another unit.
    """
    numbers: dict[str, str] = {}
    units: dict[str, dict[str, str]] = {}
    for step, text in zip(run.steps, run.spoken, strict=True):
        stated = {normalize_number(n) for n in _LONG_NUMBER.findall(text.text) if len(n) > 3}
        measures = _measures(text.text)
        if step.is_message and not step.code:
            for number in missing_values(sorted(stated - numbers.keys()), run.before(step)):
                near = [
                    (other, event_id)
                    for other, event_id in numbers.items()
                    if other not in stated and _is_slip(number, other)
                ]
                if len(near) == 1:
                    (other, event_id) = near[0]
                    yield Divergence(
                        "altered_number", step.event_id, step.agent, number, other, event_id
                    )
            for number, unit in measures:
                if len(number) < 3:
                    continue
                before = units.get(number, {})
                others = [u for u in before if _KIND_OF_UNIT[u] == _KIND_OF_UNIT[unit]]
                if others and not any(_is_same_unit(unit, other) for other in others):
                    yield Divergence(
                        "altered_unit",
                        step.event_id,
                        step.agent,
                        f"{number} {unit}",
                        f"{number} {others[0]}",
                        before[others[0]],
                    )
        for number in stated:
            numbers.setdefault(number, step.event_id)
        for number, unit in measures:
            units.setdefault(number, {}).setdefault(unit, step.event_id)


def _measures(text: str) -> list[tuple[str, str]]:
    return [(normalize_number(n), unit.casefold()) for n, unit in _MEASURE.findall(text)]


def _is_same_unit(one: str, other: str) -> bool:
    return one == other or any(one in same and other in same for same in _SPELLINGS)


def _is_slip(one: str, other: str) -> bool:
    """Whether two neighboring digits of a number of four or more were exchanged, or one digit of a
    number of five or more was replaced.
    """
    if len(one) != len(other) or len(one) < 4:
        return False
    places = [n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    if len(places) == 1:
        return len(one) > 4 and places[0] < len(one) - 1
    return len(places) == 2 and places[1] == places[0] + 1 and sorted(one) == sorted(other)


def _substituted_values(run: Conversation) -> Iterator[Divergence]:
    """Steps with a year that occurs in no earlier event and none of the years of the task. Programs
    that compare with a number that occurs in no earlier event and with none of the task.
    """
    years = set(_YEAR.findall(run.task.text))
    seen = set(years)
    numbers = {n for n in run.task.numbers if len(n) > 1} - years
    for step in run.steps:
        found = set(_YEAR.findall(step.text))
        asks = step.is_call or step.program or step.role is Role.COORDINATOR
        new = found - seen
        limits = [normalize_number(n) for n in _COMPARED.findall(step.program)]
        if step.program and len(numbers) == 1 and not numbers & numbers_in(step.program):
            unseen = missing_values([n for n in limits if len(n) > 1], run.before(step))
            if len(unseen) == 1 and not found & set(unseen):
                yield Divergence(
                    "substituted", step.event_id, step.agent, unseen[0], next(iter(numbers))
                )
        is_new = len(new) == 1 and bool(missing_values(new, run.before(step)))
        if years and step.is_blameable and asks and is_new and not found & years:
            year = next(iter(new))
            yield Divergence(
                "substituted", step.event_id, step.agent, year, ", ".join(sorted(years))
            )
        seen |= found


def _partial_views(run: Conversation, vocabulary: Vocabulary) -> Iterator[Divergence]:
    """The next message of the agent whose call returned a part of a longer output."""
    for step in run.steps:
        part = _part_shown(step, vocabulary)
        if part is None:
            continue
        quote, end, total = part
        after = run.steps[step.position + 1 :]
        call = next((s for s in reversed(run.steps[: step.position][-3:]) if s.is_blameable), step)
        if end >= total or _is_read_on(after, end, file_names(call.text), vocabulary):
            continue
        messages = [s for s in after if s.is_message]
        reader = next((s for s in messages if s.agent == call.agent), next(iter(messages), None))
        if reader:
            yield Divergence(
                "partial_view",
                reader.event_id,
                reader.agent,
                found=excerpt(quote, 60),
                source_event_id=step.event_id,
            )
            return


def _part_shown(step: AgentStep, vocabulary: Vocabulary) -> tuple[str, int, int] | None:
    """What an output says about the part that it shows: the words, the end and the total."""
    if step.role is not Role.OUTPUT:
        return None
    text = step.text if len(step.text) < 1_000 else f"{step.text[:500]}\n{step.text[-500:]}"
    match = vocabulary.search("part_of", text)
    if not match or not match["end"] or not match["total"]:
        return None
    return match.group(), int(match["end"]), int(match["total"])


def _is_read_on(
    after: Sequence[AgentStep], end: int, sources: Sequence[str], vocabulary: Vocabulary
) -> bool:
    """Whether a later output shows a later part, or a later program opens the file."""
    if any(set(sources) & set(file_names(step.program)) for step in after):
        return True
    parts = [part for step in after if (part := _part_shown(step, vocabulary))]
    return any(later > end for _, later, _ in parts)


def _unopened_sources(run: Conversation) -> Iterator[Divergence]:
    """Messages that answer a request to open an entry of a list, when no call ever opens it."""
    listed: dict[str, tuple[str, str]] = {}
    agents = {step.agent for step in run.steps if step.agent}
    for step in run.steps:
        if step.role is Role.OUTPUT:
            entries = _LISTED.findall(step.text[:6_000])
            if len(entries) >= _MIN_LISTED:
                listed.update({number: (title, step.event_id) for number, title in entries})
        elif listed and step.is_message and not step.code:
            asked = addressees(step.text, agents - {step.agent})
            for number in _REFERENCE.findall(step.text):
                title, event_id = listed.get(number, ("", ""))
                if not title or not asked or _is_opened(run.steps, number, title):
                    continue
                answer = next((s for s in run.steps[step.position + 1 :] if s.agent in asked), None)
                if answer and answer.is_message and not answer.code:
                    yield Divergence(
                        "unopened",
                        answer.event_id,
                        answer.agent,
                        stated=excerpt(title, 80),
                        source_event_id=event_id,
                    )
                    return


def _is_opened(steps: Sequence[AgentStep], number: str, title: str) -> bool:
    """Whether a call names the entry by its number or its title."""
    words = re.findall(r"\w{4,}", title.casefold())[:6]
    for step in steps:
        if step.is_call or step.code:
            text = step.text.casefold()
            if re.search(rf"(?<!\d){number}(?!\d)", text) or (
                words and sum(word in text for word in words) * 3 >= len(words) * 2
            ):
                return True
    return False


def _unread_files(steps: Sequence[AgentStep]) -> Iterator[Divergence]:
    """The first message after the last call that opens one of the files that an output lists, if
    the calls open two or more and not all of them, by name.
    """
    for step in steps:
        if step.role is not Role.OUTPUT or step.exit_code:
            continue
        endings: dict[str, list[str]] = {}
        for name in file_names(step.text):
            endings.setdefault(name.rpartition(".")[2].casefold(), []).append(name)
        listed = max(endings.values(), key=len) if endings else []
        after = steps[step.position + 1 :]
        acts = [s for s in after if s.is_call or s.program]
        if len(listed) < _MIN_FILES or any(_PATTERN.search(s.text) for s in acts):
            continue
        opened = {name for s in acts for name in listed if name in s.text}
        if not 1 < len(opened) < len(listed):
            continue
        last = next(s for s in reversed(acts) if any(name in s.text for name in listed))
        reader = next((s for s in after if s.position > last.position and s.is_message), None)
        if reader:
            yield Divergence(
                "unread_files",
                reader.event_id,
                reader.agent,
                stated=str(len(opened)),
                found=str(len(listed)),
                source_event_id=step.event_id,
            )
            return


def _typed_in_data(run: Conversation) -> Iterator[Divergence]:
    """Programs that contain values of earlier outputs and open no file, after a program that opens
    a file failed.
    """
    failed: tuple[str, AgentStep] | None = None
    for step, following in zip(run.steps, run.steps[1:], strict=False):
        program = step.program
        if not program or following.role is not Role.OUTPUT:
            continue
        files = file_names(program)
        if following.exit_code not in (0, None):
            failed = (files[0], step) if files else failed
        elif failed and not files:
            literals = list(dict.fromkeys(m.strip("\"'") for m in _LITERAL.findall(program)))
            known = len(literals) - len(missing_values(literals, run.before(step)))
            if known >= _MIN_TYPED and known * 2 > len(literals):
                name, source = failed
                yield Divergence(
                    "typed_in",
                    step.event_id,
                    step.agent,
                    found=name,
                    source_event_id=source.event_id,
                )
                return
        elif files:
            failed = None
