"""The block of a playbook that goes into a prompt: chosen bullets, their keys, and the request to
cite them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from apps.memory_api.core import prompts
from apps.memory_api.playbook.keys import sort_key
from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.playbook.sections import SectionDefinition, normal_name

SHORT_INJECT = (
    "Key points from earlier work. When one influences you, cite its ID in brackets, "
    "like [pat-001].\n\n{key_points}\n"
)
"""Stands in where prompts/inject.txt is not installed."""
_WIDE = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)


Form = Literal["prompt", "ace"]
"""A bullet's line: its title, when to use it and its advice; or ACE's, with its votes."""


@dataclass(frozen=True)
class Rendered:
    """`keys` are those in the text, in its order; `tokens` is the size of the text."""

    text: str
    keys: tuple[str, ...]
    tokens: int


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has: one a CJK character, one for each four of the rest."""
    wide = len(_WIDE.findall(text))
    return wide + -(-(len(text) - wide) // 4)


def render(
    bullets: Sequence[Bullet],
    sections: Sequence[SectionDefinition] = (),
    token_budget: int | None = None,
    count_tokens: Callable[[str], int] = estimate_tokens,
    template: str | None = None,
    form: Form = "prompt",
) -> Rendered:
    """The text for a prompt out of `bullets`, given best first; empty when there is nothing to say
    or no room.

    With a budget, each bullet is taken in turn if it still fits, instruction and headings included.
    The text orders them by section and key, so that the same choice is the same text whatever the
    ranking was.
    """
    frame = _inject() if template is None else template
    line = LINES[form]
    left = None if token_budget is None else token_budget - count_tokens(_fill(frame, ""))
    chosen = list(bullets) if left is None else _fitting(bullets, left, count_tokens, line)
    while chosen:
        ordered, body = _body(chosen, sections, line)
        text = _fill(frame, body)
        tokens = count_tokens(text)
        if token_budget is None or tokens <= token_budget:
            return Rendered(text, tuple(bullet.id for bullet in ordered), tokens)
        # Only when the sum of the parts was less than the whole, which a tokeniser may do.
        chosen.pop()
    return Rendered("", (), 0)


def format_playbook(playbook: Mapping[str, Any], template: str | None = None) -> str:
    """Spec 4's playbook as the text that is injected: every key point with its counters, under its
    section.

    Empty sections are left out; a playbook without key points gives an empty text.
    """
    blocks: list[str] = []
    sections = cast("Mapping[str, Sequence[Mapping[str, Any]]]", playbook.get("sections", {}))
    for name, entries in sections.items():
        lines = [_point(entry) for entry in entries]
        if lines:
            blocks.append("\n".join([f"## {name}", *lines]))
    return _fill(template or _inject(), "\n\n".join(blocks)) if blocks else ""


def _point(entry: Mapping[str, Any]) -> str:
    votes = f"helpful={entry.get('helpful', 0)} harmful={entry.get('harmful', 0)}"
    return f"[{entry['name']}] {votes} :: {entry['text']}"


def _inject() -> str:
    return prompts.load("inject", builtin=SHORT_INJECT).text


def _fill(template: str, key_points: str) -> str:
    return prompts.render(template, {"key_points": key_points})


def _line(bullet: Bullet) -> str:
    """One bullet; further lines are indented, so that no text of a bullet can pose as a heading or
    another bullet.
    """
    title = f"{bullet.title}: " if bullet.title else ""
    said = bullet.content.startswith(bullet.when_to_use)  # a rule often begins with its condition
    when = "" if said else f"(when: {bullet.when_to_use}) "
    text = "\n  ".join(f"{title}{when}{bullet.content}".splitlines())
    return f"- [{bullet.id}] {text}"


def _ace_line(bullet: Bullet) -> str:
    votes = {"helpful": bullet.helpful, "harmful": bullet.harmful}
    return "\n  ".join(_point({"name": bullet.id, "text": bullet.content, **votes}).splitlines())


LINES: dict[Form, Callable[[Bullet], str]] = {"prompt": _line, "ace": _ace_line}


def _heading(section: str) -> str:
    return f"## {' '.join(section.split())}"


def _fitting(
    bullets: Sequence[Bullet],
    room: int,
    count_tokens: Callable[[str], int],
    line: Callable[[Bullet], str],
) -> list[Bullet]:
    chosen: list[Bullet] = []
    headed: set[str] = set()
    for bullet in bullets:
        cost = count_tokens(f"{line(bullet)}\n")
        if bullet.section not in headed:
            cost += count_tokens(f"{_heading(bullet.section)}\n\n")
        if cost <= room:
            room -= cost
            headed.add(bullet.section)
            chosen.append(bullet)
    return chosen


def _body(
    bullets: Sequence[Bullet],
    sections: Sequence[SectionDefinition],
    line: Callable[[Bullet], str],
) -> tuple[list[Bullet], str]:
    places = {normal_name(section.name): n for n, section in enumerate(sections)}
    by_section: dict[str, list[Bullet]] = {}
    for bullet in sorted(bullets, key=lambda b: sort_key(b.id)):
        by_section.setdefault(bullet.section, []).append(bullet)
    names = sorted(by_section, key=lambda n: (places.get(normal_name(n), len(places)), n))
    blocks = ["\n".join([_heading(n), *map(line, by_section[n])]) for n in names]
    return [bullet for name in names for bullet in by_section[name]], "\n\n".join(blocks)
