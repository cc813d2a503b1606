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
from apps.memory_api.playbook.schemas import Bullet, unsaid
from apps.memory_api.playbook.sections import SectionDefinition, normal_name

SHORT_INJECT = (
    "Key points from earlier work. When one influences you, cite its ID in brackets, "
    "like [pat-001].\n\n{key_points}\n"
)
"""Stands in where prompts/inject.txt is not installed, and where that would take more than half
of the budget.
"""
Form = Literal["prompt", "ace"]
"""A bullet's line: its title, when to use it and its advice; or ACE's, with its votes."""
Line = Callable[[Bullet], str]
_WIDE = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)


@dataclass(frozen=True)
class Rendered:
    """`keys` are those in the text, in its order; `tokens` is the size of the text, `left_out` how
    many bullets did not fit.
    """

    text: str
    keys: tuple[str, ...]
    tokens: int
    left_out: int = 0


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
    line = LINES[form]
    frame = _inject() if template is None else template
    if token_budget is None:
        chosen = list(bullets)
    else:
        if template is None and 2 * count_tokens(_fill(frame, "")) > token_budget:
            frame = SHORT_INJECT
        room = token_budget - count_tokens(_fill(frame, ""))
        chosen = _fitting(bullets, room, count_tokens, line)
    while chosen:
        ordered, body = _body(chosen, sections, line)
        text = _fill(frame, body)
        tokens = count_tokens(text)
        if token_budget is None or tokens <= token_budget:
            keys = tuple(bullet.id for bullet in ordered)
            return Rendered(text, keys, tokens, len(bullets) - len(keys))
        # Only when the sum of the parts was less than the whole, which a tokeniser may do.
        chosen.pop()
    return Rendered("", (), 0, len(bullets))


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
    """One bullet, each thing said once; further lines are indented, so that no text of a bullet can
    pose as a heading or another bullet.
    """
    title, when = (unsaid(part, bullet.content) for part in (bullet.title, bullet.when_to_use))
    lead = (f"{title}: " if title else "") + (f"(when: {when}) " if when else "")
    text = "\n  ".join(f"{lead}{bullet.content}".splitlines())
    return f"- [{bullet.id}] {text}"


def _counted(bullet: Bullet) -> str:
    """The same as ACE writes it: with its counters, without title and condition."""
    text = "\n    ".join(bullet.content.splitlines())
    return f"[{bullet.id}] helpful={bullet.helpful} harmful={bullet.harmful} :: {text}"


LINES: Mapping[Form, Line] = {"prompt": _line, "ace": _counted}


def _heading(section: str) -> str:
    return f"## {' '.join(section.split())}"


def _fitting(
    bullets: Sequence[Bullet], room: int, count_tokens: Callable[[str], int], line: Line
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
    bullets: Sequence[Bullet], sections: Sequence[SectionDefinition], line: Line
) -> tuple[list[Bullet], str]:
    places = {normal_name(section.name): n for n, section in enumerate(sections)}
    by_section: dict[str, list[Bullet]] = {}
    for bullet in sorted(bullets, key=lambda b: sort_key(b.id)):
        by_section.setdefault(bullet.section, []).append(bullet)
    names = sorted(by_section, key=lambda n: (places.get(normal_name(n), len(places)), n))
    blocks = ["\n".join([_heading(n), *map(line, by_section[n])]) for n in names]
    return [bullet for name in names for bullet in by_section[name]], "\n\n".join(blocks)
