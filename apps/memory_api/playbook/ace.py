"""ACE's text form: `[id] helpful=H harmful=M :: text`, one bullet a line, under `## SECTION`
headings.

A text of several lines goes on in lines that begin with four spaces; the original form has no way
to say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from apps.memory_api.playbook.found import Findings, Found
from apps.memory_api.playbook.schemas import Bullet, CorruptPlaybook

_BULLET = re.compile(
    r"\[([^\]\n]+)\][ \t]+helpful=([0-9]{1,10})[ \t]+harmful=([0-9]{1,10})[ \t]+::(?: (.*))?",
    re.DOTALL,
)
_MORE = "    "
_NEITHER = "neither a bullet (`[id] helpful=H harmful=M :: text`) nor a '## SECTION' heading"


def read_ace(text: str) -> Findings:
    """Raises CorruptPlaybook, naming the line, for a line that is neither bullet, heading nor
    blank.
    """
    found = Findings()
    section = "OTHERS"
    for n, line in _logical_lines(text):
        if match := _BULLET.fullmatch(line):
            key, helpful, harmful, content = match.groups(default="")
            entry = Found(f"line {n}", section, key, content, int(helpful), int(harmful))
            found.entries.append(entry)
        elif line.startswith("##") and (name := line.lstrip("#").strip()):
            section = name
            found.section_names.append(section)
        elif line.startswith("# "):
            found.notes.append(f"line {n}: the title is not kept")
        elif line.strip():
            raise CorruptPlaybook(f"line {n}", _NEITHER)
    return found


def write_ace(groups: Iterable[tuple[str, list[Bullet]]]) -> str:
    """Raises ValueError for a key or section name that the form cannot hold."""
    lines: list[str] = []
    for section, bullets in groups:
        if not section or section != section.strip() or "\n" in section:
            raise ValueError(f"ACE's form cannot hold the section {section!r}")
        lines += [f"## {section}", *(_bullet_lines(bullet) for bullet in bullets), ""]
    return "\n".join(lines)


def _bullet_lines(bullet: Bullet) -> str:
    content = bullet.content.replace("\n", f"\n{_MORE}")
    line = f"[{bullet.id}] helpful={bullet.helpful} harmful={bullet.harmful} :: {content}"
    if _BULLET.fullmatch(line) is None or "]" in bullet.id:
        raise ValueError(f"ACE's form cannot hold the key {bullet.id!r} or its counters")
    return line


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, a bullet and the indented lines that follow it as one."""
    start, in_bullet = 0, False
    parts: list[str] = []
    for n, line in enumerate(_lines(text), 1):
        if in_bullet and line.startswith(_MORE):
            parts.append(line.removeprefix(_MORE))
            continue
        if parts:
            yield start, "\n".join(parts)
        start, parts, in_bullet = n, [line], _BULLET.fullmatch(line) is not None
    yield start, "\n".join(parts)


def _lines(text: str) -> list[str]:
    """Split at line feeds alone: other breaks may be part of a bullet. A file in which all lines
    end CRLF loses the CR.
    """
    lines = text.split("\n")
    if len(lines) > 1 and all(line.endswith("\r") for line in lines[:-1]):
        lines = [line.removesuffix("\r") for line in lines]
    return lines
