"""The block of a playbook that goes into a prompt: chosen bullets, their keys, and the request to
cite them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field
from typing_extensions import TypeAliasType

from memory_api.llm import prompts
from memory_api.playbooks.formats.key_points import list_key_points
from memory_api.playbooks.models import format_advice
from memory_api.text.terms import estimate_tokens

SHORT_CITATION_REQUEST = (
    "Read these key points before you act, and follow those that apply. When one influences you, "
    "cite its ID in brackets, like [pat-001].\n\n{key_points}\n"
)
"""Replaces prompts/retrieval/prompt_block.txt if the file is missing or would take more than half
of the token budget.
"""
BulletFormat = TypeAliasType(
    "BulletFormat",
    Annotated[
        Literal["prompt", "ace"],
        Field(
            description="How each bullet is written: `prompt` with title and `when_to_use`, `ace` "
            "with its counters."
        ),
    ],
)


class ShownBullet(Protocol):
    """What a prompt shows of a bullet. `id` is its key."""

    @property
    def id(self) -> str: ...
    @property
    def section(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def when_to_use(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def helpful(self) -> int: ...
    @property
    def harmful(self) -> int: ...


BulletFormatter = Callable[[ShownBullet], str]


@dataclass(frozen=True)
class PromptBlock:
    """`keys` are the bullets in the text, in order. `tokens` is the size of the text, `left_out`
    the number of bullets that did not fit.
    """

    text: str
    keys: tuple[str, ...]
    tokens: int
    left_out: int = 0


_Line = tuple[ShownBullet, str]
"""A bullet and its text in the block."""


def render_block(
    bullets: Sequence[ShownBullet],
    token_budget: int | None = None,
    count_tokens: Callable[[str], int] = estimate_tokens,
    template: str | None = None,
    form: BulletFormat = "prompt",
) -> PromptBlock:
    """Format `bullets`, best first, for a prompt. The text is empty if no bullet fits.

    With a budget, each bullet is added if it fits together with instruction and headings. The best
    bullet stands first, followed by the others of its section in their order.
    """
    format_bullet = FORMATTERS[form]
    lines = [(bullet, format_bullet(bullet)) for bullet in bullets]
    frame = _default_template() if template is None else template
    if token_budget is None:
        chosen = lines
    else:
        if template is None and 2 * count_tokens(_fill(frame, "")) > token_budget:
            frame = SHORT_CITATION_REQUEST
        room = token_budget - count_tokens(_fill(frame, ""))
        chosen = _select_fitting(lines, room, count_tokens)
    while chosen:
        ordered, body = _format_sections(chosen)
        text = _fill(frame, body)
        tokens = count_tokens(text)
        if token_budget is None or tokens <= token_budget:
            keys = tuple(bullet.id for bullet, _ in ordered)
            return PromptBlock(text, keys, tokens, len(bullets) - len(keys))
        # A tokenizer may count more tokens for the whole than for the sum of its parts.
        chosen.pop()
    return PromptBlock("", (), 0, len(bullets))


def format_playbook(playbook: Mapping[str, Any], template: str | None = None) -> str:
    """Format a playbook of spec 4 for a prompt: every key point with its counters, by section.
    Accepts older forms of the file and that of spec 2 (`formats/key_points.py`).

    Omits empty sections. Returns '' for a playbook without key points.
    """
    lines: dict[str, list[str]] = {}
    for point in list_key_points(playbook):
        counters = f"helpful={point.helpful} harmful={point.harmful}"
        advice = format_advice("", point.when_to_use, point.text)
        line = f"[{point.name}] {counters} :: {_indent(advice, '    ')}"
        lines.setdefault(point.section, []).append(line)
    blocks = ["\n".join([_heading(section), *lines[section]]) for section in lines]
    return _fill(template or _default_template(), "\n\n".join(blocks)) if blocks else ""


@cache
def _default_template() -> str:
    return prompts.load_prompt("retrieval/prompt_block", builtin=SHORT_CITATION_REQUEST).text


def _fill(template: str, key_points: str) -> str:
    return prompts.render_template(template, {"key_points": key_points})


def _format_for_prompt(bullet: ShownBullet) -> str:
    """Further lines are indented, so that no text of a bullet looks like a heading or another
    bullet.
    """
    advice = format_advice(bullet.title, bullet.when_to_use, bullet.content)
    return f"- [{bullet.id}] {_indent(advice, '  ')}"


def _format_for_ace(bullet: ShownBullet) -> str:
    """One bullet in the ACE format: with its counters, without title and condition."""
    text = _indent(bullet.content, "    ")
    return f"[{bullet.id}] helpful={bullet.helpful} harmful={bullet.harmful} :: {text}"


def _indent(text: str, prefix: str) -> str:
    return f"\n{prefix}".join(text.splitlines())


FORMATTERS: Mapping[BulletFormat, BulletFormatter] = {
    "prompt": _format_for_prompt,
    "ace": _format_for_ace,
}


def _heading(section: str) -> str:
    return f"## {' '.join(section.split())}"


def _select_fitting(
    lines: Sequence[_Line], room: int, count_tokens: Callable[[str], int]
) -> list[_Line]:
    chosen: list[_Line] = []
    sections: set[str] = set()
    for bullet, text in lines:
        section = bullet.section
        cost = count_tokens(f"{text}\n")
        if section not in sections:
            cost += count_tokens(f"{_heading(section)}\n\n")
        if cost <= room:
            room -= cost
            sections.add(section)
            chosen.append((bullet, text))
    return chosen


def _format_sections(lines: Sequence[_Line]) -> tuple[list[_Line], str]:
    by_section: dict[str, list[_Line]] = {}
    for bullet, text in lines:
        by_section.setdefault(bullet.section, []).append((bullet, text))
    blocks = [
        "\n".join([_heading(section), *(text for _, text in of_section)])
        for section, of_section in by_section.items()
    ]
    return [line for of_section in by_section.values() for line in of_section], "\n\n".join(blocks)
