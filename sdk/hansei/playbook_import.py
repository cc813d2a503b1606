"""Reads the lessons of others: AGENTS.md and CLAUDE.md, skillbooks of kayba, exports of mem0.

`replace_playbook` of the service reads Hansei's own formats and that of ACE; here are the others.
Their lessons are added to a playbook, unless it already has the same text.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from hansei._model import Json
from hansei.errors import BadRequestError
from hansei.models import Bullet

if TYPE_CHECKING:
    from markdown_it.token import Token

ImportFormat = Literal[
    "auto", "bullets", "sections", "ace", "agents-md", "claude-md", "skillbook", "mem0"
]
FOREIGN_FORMATS = frozenset({"agents-md", "claude-md", "skillbook", "mem0"})
DEFAULT_SECTION = "OTHERS"
MAX_SECTION_LENGTH = 128

_MARK = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+")
_ATTACHED = frozenset({"fence", "code_block", "blockquote_open"})
_KEY = re.compile(r"^\[[A-Za-z][A-Za-z0-9_]*-\d+\]\s*")
_ACE_BULLET = re.compile(r"^\[[^\]\n]+\]\s+helpful=\d+\s+harmful=\d+\s+::", re.MULTILINE)
_BLOCK_BEGIN, _BLOCK_END = "<!-- hansei:begin", "<!-- hansei:end"


@dataclass(frozen=True)
class ImportedLesson:
    """One lesson. `key` is None if the service should give it a new one."""

    section: str
    content: str
    key: str | None = None
    helpful: int = 0
    harmful: int = 0
    neutral: int = 0


def detect_format(text: str, file_name: str) -> ImportFormat:
    """`bullets` stands for every format that the service reads by itself, and for a file that is
    none, which the service refuses.
    """
    if text.lstrip().startswith(("{", "[")) and not _ACE_BULLET.search(text):
        value = _parse_json(text)
        if isinstance(value, list):
            entries = cast("list[Any]", value)
            return "mem0" if any(isinstance(entry, dict) for entry in entries) else "bullets"
        if isinstance(value, dict):
            fields = cast(Json, value)
            if any(isinstance(fields.get(name), dict) for name in ("skills", "bullets")):
                return "skillbook"
            if isinstance(fields.get("results", fields.get("memories")), list):
                return "mem0"
        return "bullets"
    if file_name.lower().endswith((".md", ".markdown")) and not _ACE_BULLET.search(text):
        return "agents-md"
    return "bullets"


def parse_lessons(text: str, format: ImportFormat) -> list[ImportedLesson]:
    """Raises `BadRequestError` if nothing can be read."""
    if format in ("agents-md", "claude-md"):
        lessons = list(_parse_markdown(text))
    elif format == "skillbook":
        lessons = list(_parse_skillbook(_require_json(text)))
    else:
        lessons = list(_parse_mem0(_require_json(text)))
    if not lessons:
        raise BadRequestError(f"The file contains no lessons in the format {format}.")
    return lessons


def merge_lessons(
    current: Iterable[Bullet], lessons: Iterable[ImportedLesson]
) -> tuple[list[Json], int]:
    """The bullets of the playbook followed by the new ones, and how many were already known."""
    merged = [bullet.model_dump() for bullet in current]
    known = {_folded(bullet["content"]) for bullet in merged}
    keys = {str(bullet["id"]) for bullet in merged}
    last_numbers: dict[str, int] = {}
    duplicates = 0
    for lesson in lessons:
        if _folded(lesson.content) in known:
            duplicates += 1
            continue
        known.add(_folded(lesson.content))
        key = lesson.key
        if not key or key in keys:
            key = _new_key(lesson, keys, last_numbers)
        keys.add(key)
        merged.append(
            {
                "id": key,
                "section": lesson.section,
                "content": lesson.content,
                "helpful": lesson.helpful,
                "harmful": lesson.harmful,
                "neutral": lesson.neutral,
            }
        )
    return merged, duplicates


def _new_key(lesson: ImportedLesson, keys: set[str], last: dict[str, int]) -> str:
    """`last`: the last number that was given to a prefix."""
    letters = re.sub(r"[^a-z]", "", lesson.section.lower())[:4] or "imp"
    number = last.get(letters, 0) + 1
    while (key := f"{letters}-{number:05}") in keys:
        number += 1
    last[letters] = number
    return key


def _parse_markdown(text: str) -> Iterator[ImportedLesson]:
    """Each list item and each paragraph is a lesson; headings are sections. A code block or a quote
    belongs to the lesson before it. Front matter, comments and blocks of Hansei are left out.
    """
    from markdown_it import MarkdownIt  # noqa: PLC0415 - every command would load it

    lines = list(_own_lines(text))
    section, waiting = DEFAULT_SECTION, ""
    for token in MarkdownIt("commonmark").parse("\n".join(lines)):
        if token.map is None or not _is_part(token):
            continue
        source = textwrap.dedent("\n".join(lines[token.map[0] : token.map[1]])).strip()
        if token.type in _ATTACHED and waiting:
            waiting += f"\n{source}"
            continue
        yield from _lesson(section, waiting)
        waiting = ""
        if token.type == "heading_open":
            section = _heading_text(source)
        elif token.type == "list_item_open":
            first, *rest = source.split("\n", 1)
            waiting = "\n".join([_MARK.sub("", first), *map(textwrap.dedent, rest)])
        elif token.type != "html_block":
            waiting = source
    yield from _lesson(section, waiting)


def _is_part(token: Token) -> bool:
    """Whether a token begins a part of the document: a block, or an item of a list."""
    is_list = token.type in ("bullet_list_open", "ordered_list_open")
    is_block = token.level == 0 and token.nesting >= 0 and not is_list
    return is_block or (token.level == 1 and token.type == "list_item_open")


def _heading_text(source: str) -> str:
    text = re.sub(r"[*`]", "", source.split("\n")[0]).strip("#_ \t")[:MAX_SECTION_LENGTH].strip()
    return text or DEFAULT_SECTION


def _lesson(section: str, text: str) -> Iterator[ImportedLesson]:
    content = _KEY.sub("", text.strip())
    if content:
        yield ImportedLesson(section, content)


def _own_lines(text: str) -> Iterator[str]:
    lines = text.removeprefix("\ufeff").splitlines()
    if lines and lines[0].strip() == "---" and "---" in [line.strip() for line in lines[1:]]:
        lines = lines[[line.strip() for line in lines].index("---", 1) + 1 :]
    in_block = False
    # Up to the last end, each comment has one: the search takes linear time.
    closed, end, rest = "\n".join(lines).rpartition("-->")
    plain = re.sub(r"<!--(?!\s*hansei:).*?-->", "", closed + end, flags=re.S) + rest
    for line in plain.split("\n"):
        if line.strip().startswith(_BLOCK_BEGIN):
            in_block = True
        elif line.strip().startswith(_BLOCK_END):
            in_block = False
        elif not in_block:
            yield line


def _parse_skillbook(value: Any) -> Iterator[ImportedLesson]:
    """`skills` (older files: `bullets`) by ID."""
    fields = cast(Json, value) if isinstance(value, dict) else {}
    entries = fields.get("skills", fields.get("bullets"))
    if not isinstance(entries, dict):
        raise BadRequestError("A skillbook has an object `skills` or `bullets`.")
    for key, entry in cast("Mapping[str, Any]", entries).items():
        if not isinstance(entry, dict):
            raise BadRequestError(f"`{key}` of the skillbook is not an object.")
        skill = cast(Json, entry)
        content = skill.get("content")
        if skill.get("status", "active") == "active" and isinstance(content, str) and content:
            yield ImportedLesson(
                str(skill.get("section") or DEFAULT_SECTION)[:MAX_SECTION_LENGTH],
                content,
                str(skill.get("id") or key),
                _count(skill, "helpful"),
                _count(skill, "harmful"),
                _count(skill, "neutral"),
            )


def _parse_mem0(value: Any) -> Iterator[ImportedLesson]:
    """The result of `get_all` or of an export: a list of objects with `memory`."""
    entries: Any = value
    if isinstance(value, dict):
        fields = cast(Json, value)
        entries = fields.get("results", fields.get("memories"))
    if not isinstance(entries, list):
        raise BadRequestError("An export of mem0 is a list, or an object with `results`.")
    for number, entry in enumerate(cast("list[Any]", entries)):
        if not isinstance(entry, dict):
            raise BadRequestError(f"Entry {number} of the export is not an object.")
        memory = cast(Json, entry)
        content = memory.get("memory") or memory.get("text") or memory.get("data")
        if isinstance(content, str) and content.strip():
            yield ImportedLesson(_category(memory), content)


def _category(memory: Json) -> str:
    categories: Any = memory.get("categories")
    names = cast("list[Any]", categories) if isinstance(categories, list) else []
    return str(next(iter(names), DEFAULT_SECTION))[:MAX_SECTION_LENGTH]


def _count(fields: Json, name: str) -> int:
    value = fields.get(name, 0)
    return value if isinstance(value, int) and value >= 0 else 0


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _require_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadRequestError(f"The file is not JSON ({place}: {error.msg}).") from error
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"The file is not JSON ({error}).") from error


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
