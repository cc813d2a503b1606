"""Writes a playbook into files that coding agents read: SKILL.md, AGENTS.md, CLAUDE.md.

A skill is a folder of its own: SKILL.md with front matter, and one file for each section, which an
agent opens on demand. In AGENTS.md and CLAUDE.md, the playbook is a block between two markers. The
text around it belongs to others and stays. A file whose markers or block were edited by hand is
refused with the line, because an update would lose the edit.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hansei._file_limit import MAX_PLAYBOOK_BYTES, read_file
from hansei.coding_agents.hook_settings import require_inside, write_atomically
from hansei.errors import BadRequestError
from hansei.models import Bullet

_MARKER = re.compile(r"^[ \t]*<!--\s*hansei:(begin|end)\b(.*?)-->[ \t]*$")
_LOOSE_MARKER = re.compile(r"hansei:\s*(begin|end)\b", re.IGNORECASE)
_AT = re.compile(r"(?<![A-Za-z0-9`])@")
"""What can begin an import of a file into CLAUDE.md: no e-mail address, and not in code."""
_IMPORT = re.compile(_AT.pattern + r"(?=[~/.\\]|[A-Za-z]:)")
"""An import of a file of the home folder, of an absolute one, or of a hidden one."""
_FOLDER_ABOVE = re.compile(r"\.\.[/\\]")
_PLAYBOOK = re.compile(r'\bplaybook="([^"]+)"')
_DIGEST = re.compile(r"\bsha256=([0-9a-f]{16})\b")
_OWNED = "<!-- Written by `hansei playbook export`. Do not edit. -->"
MAX_SKILL_NAME = 64
MAX_DESCRIPTION = 1024
CITE = (
    "Lessons from earlier runs. When a bullet influences what you do, cite its key in brackets, "
    "for example [{key}]."
)


@dataclass(frozen=True)
class AgentPlaybook:
    """What is written: the active bullets of a playbook at a version."""

    name: str
    version: int
    bullets: Sequence[Bullet]

    def by_section(self) -> dict[str, list[Bullet]]:
        sections: dict[str, list[Bullet]] = {}
        for bullet in self.bullets:
            sections.setdefault(bullet.section, []).append(bullet)
        return sections


def select_bullets(bullets: Iterable[Bullet], limit: int | None) -> list[Bullet]:
    """The active bullets in their order; with a limit, those with the best counters."""
    active = [bullet for bullet in bullets if bullet.status == "active"]
    if limit is None or len(active) <= limit:
        return active
    ranked = sorted(
        active,
        key=lambda bullet: bullet.helpful - bullet.harmful,
        reverse=True,
    )
    best = {bullet.id for bullet in ranked[:limit]}
    return [bullet for bullet in active if bullet.id in best]


def write_block(path: Path, playbook: AgentPlaybook) -> bool:
    """Replace the block of this playbook, or append one. Returns whether the file changed. Raises
    `BadRequestError`.
    """
    require_inside(path)
    text = _read(path)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(newline) if text else []
    block = _format_block(playbook)
    place = find_block(lines, playbook.name, path)
    if place is None:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += [*([""] if lines else []), *block, ""]
    else:
        first, last = place
        lines[first : last + 1] = block
    changed = newline.join(lines)
    if changed == text:
        return False
    write_atomically(path, changed)
    return True


def find_block(lines: Sequence[str], name: str, path: Path) -> tuple[int, int] | None:
    """The first and the last line of the block, from 0. Raises `BadRequestError` if a marker of
    the file or the text of this block was edited.
    """
    found: tuple[int, int] | None = None
    start: tuple[int, str, str | None] | None = None
    for number, line in enumerate(lines):
        if not _LOOSE_MARKER.search(line):
            continue
        match = _MARKER.match(line)
        if match is None or (match[1] == "begin") == (start is not None):
            raise _edited(path, number, "this marker is not what Hansei wrote")
        if match[1] == "begin":
            given, digest = _PLAYBOOK.search(match[2]), _DIGEST.search(match[2])
            if given is None:
                raise _edited(path, number, "this marker does not name its playbook")
            start = number, given[1], digest[1] if digest else None
            continue
        assert start is not None
        first, playbook, written = start
        start = None
        if playbook != name:
            continue
        if found is not None:
            raise _edited(path, first, f"a second block of playbook {name} begins here")
        if written != _digest(lines[first + 1 : number]):
            raise _edited(path, first, "the text of the block that begins here was changed")
        found = first, number
    if start is not None:
        raise _edited(path, start[0], "the block that begins here has no end marker")
    return found


def write_skill(folder: Path, playbook: AgentPlaybook) -> bool:
    """Write SKILL.md and one file for each section. Files of sections that no longer exist are
    removed. Returns whether anything changed. Raises `BadRequestError` if SKILL.md is not from
    Hansei.
    """
    main = folder / "SKILL.md"
    require_inside(main)
    old = _read(main)
    if old and _OWNED not in old:
        raise BadRequestError(
            f"{main} was not written by Hansei. Choose another folder with --output."
        )
    references = folder / "references"
    files = {main: ""}
    rows: list[str] = []
    for section, bullets in playbook.by_section().items():
        path = references / f"{_slug(section)}.md"
        while path in files:
            path = path.with_name(f"{path.stem}-2.md")
        lines = [_OWNED, "", f"# {_one_line(section)}", "", *_format_bullets(bullets), ""]
        files[path] = "\n".join(lines)
        count = "1 bullet" if len(bullets) == 1 else f"{len(bullets)} bullets"
        rows.append(f"- [{_one_line(section)}](references/{path.name}): {count}")
    files[main] = _format_skill(playbook, rows)
    for path in (references, *files):
        require_inside(path)
    changed = False
    for path, text in files.items():
        if _read(path) != text:
            write_atomically(path, text)
            changed = True
    for path in references.glob("*.md"):
        if path not in files and _read(path).startswith(_OWNED):
            path.unlink()
            changed = True
    return changed


def _format_block(playbook: AgentPlaybook) -> list[str]:
    body = [f"## Playbook {playbook.name}", "", CITE.format(key=_example_key(playbook))]
    for section, bullets in playbook.by_section().items():
        body += ["", f"### {_one_line(section)}", "", *_format_bullets(bullets)]
    name = playbook.name.replace('"', "'")
    begin = (
        f'<!-- hansei:begin playbook="{name}" version={playbook.version} sha256={_digest(body)} '
        "(written by `hansei playbook export`; do not edit) -->"
    )
    return [begin, *body, f'<!-- hansei:end playbook="{name}" -->']


def _format_skill(playbook: AgentPlaybook, rows: list[str]) -> str:
    sections = ", ".join(_one_line(section) for section in playbook.by_section())
    description = (
        f"Lessons from earlier agent runs (playbook {playbook.name}): {sections}. "
        "Read before a task of this kind."
    )
    lines = [
        "---",
        f"name: {_slug(playbook.name)[:MAX_SKILL_NAME]}",
        f"description: {json.dumps(description[:MAX_DESCRIPTION], ensure_ascii=False)}",
        "---",
        "",
        _OWNED,
        "",
        f"# Playbook {playbook.name}",
        "",
        CITE.format(key=_example_key(playbook)),
        "Open the sections that fit your task:",
        "",
        *rows,
        "",
        f"Version {playbook.version}.",
        "",
    ]
    return "\n".join(lines)


def _format_bullets(bullets: Iterable[Bullet]) -> Iterator[str]:
    """A list with one item for each bullet. Further lines are indented, so that code blocks stay
    what they are.
    """
    for bullet in bullets:
        condition = _one_line(bullet.when_to_use)
        first, *rest = map(_harmless, bullet.content.strip().splitlines() or [""])
        if condition and condition not in _one_line(bullet.content):
            first = f"{condition}: {first}"
        yield f"- [{bullet.id}] {first}"
        yield from (f"  {line}".rstrip() for line in rest)


def _one_line(text: str) -> str:
    return _harmless(" ".join(text.split()))


def _harmless(line: str) -> str:
    """The line without text that looks like a marker, opens a comment or imports a file."""
    plain = line.replace("\x00", "").replace("<!--", "&lt;!--")
    # A path may contain spaces, so a folder above belongs to any import before it.
    plain = (_AT if _FOLDER_ABOVE.search(plain) else _IMPORT).sub("&#64;", plain)
    return _LOOSE_MARKER.sub(r"hansei \1", plain)


def _example_key(playbook: AgentPlaybook) -> str:
    return playbook.bullets[0].id if playbook.bullets else "mis-00001"


def _slug(text: str) -> str:
    """Lower-case letters, digits and hyphens. A name without any of them gets a hash."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return slug or "s-" + hashlib.sha256(text.encode()).hexdigest()[:8]


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _edited(path: Path, index: int, reason: str) -> BadRequestError:
    return BadRequestError(
        f"{path}, line {index + 1}: {reason}. Nothing was changed. Restore the line, or delete the "
        "block with its markers; the next export writes it again."
    )


def _read(path: Path) -> str:
    """Empty if the file does not exist. Raises `BadRequestError`."""
    if not path.exists():
        return ""
    if not path.is_file():  # reading a named pipe would wait for a writer
        raise BadRequestError(f"{path} is not a file.")
    try:
        return read_file(path, MAX_PLAYBOOK_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(f"{path} cannot be read as text: {error}") from error
