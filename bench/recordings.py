"""Recorded prompts and answers of a model, and their replay against prompts that differ a little.

Recorded answers name lessons by number and bullets by key. Both depend on the order of the runs and
on the size of batches, so they are found again by their texts.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.recorded_model import RecordedCall
from memory_api.run_queue.port import Ticket
from memory_api.runs.queries import get_run
from memory_api.runtime import Runtime
from memory_api.traces.queries import get_trace

SAFE_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""For `extractall`. Python 3.11.2 has no filters, and 3.12 warns without one."""
_LESSON = re.compile(r"^(\d+)\. \(\w+\) (.+)$", re.MULTILINE)
_SECTION = re.compile(r"<([a-z-]+)-…>\n(.*?)\n</\1-…>", re.DOTALL)
_KNOWN_LESSON = re.compile(r"^\[(L\d+)\] (.+)$", re.MULTILINE)
_BULLET = re.compile(
    r"^\[([a-z]+-\d{5})\] .*?, taught by .*\n(?:  \w+: .*\n)*  (.+)$", re.MULTILINE
)


def to_current_numbers(recording: RecordedCall, prompt: str) -> str:
    """The answer with the keys and lesson IDs of another prompt."""
    answer = recording.answer
    names: dict[str, str] = {}
    for pattern in (_KNOWN_LESSON, _BULLET):
        current = {text: name for name, text in pattern.findall(prompt)}
        names |= {n: current.get(t, n) for n, t in pattern.findall(recording.prompt)}
    return re.sub(r"\b(?:L\d+|[a-z]+-\d{5})\b", lambda m: names.get(m.group(), m.group()), answer)


def changed_sections(before: str, now: str) -> str:
    """The names of the fenced sections in which two prompts differ, `instructions` for the text
    around them.
    """
    first, second = _sections(before), _sections(now)
    names = [n for n in dict.fromkeys([*first, *second]) if first.get(n) != second.get(n)]
    return ", ".join(names) or "order"


def _sections(prompt: str) -> dict[str, str]:
    sections: dict[str, str] = {"instructions": _SECTION.sub("", prompt)}
    for match in _SECTION.finditer(prompt):
        sections[match[1]] = sections.get(match[1], "") + match[2]
    return sections


class RecordedDecisions:
    """The operations of all recorded curations, applied to lessons by their text."""

    def __init__(self, recorded: Sequence[RecordedCall]) -> None:
        self.recorded = recorded
        self._used: set[int] = set()

    def answer(self, prompt: str) -> str:
        """The operations on the lessons of this prompt, in the order in which they were recorded.
        A lesson whose operation was given to an earlier batch is kept in the bullet that has the
        text of that operation.
        """
        numbers = {text: int(number) for number, text in _LESSON.findall(prompt)}
        bullets = {text: key for key, text in _BULLET.findall(prompt)}
        operations: list[dict[str, Any]] = []
        for number, (operation, texts, keys) in enumerate(self._operations()):
            mine = [numbers[text] for text in texts if text in numbers]
            if not mine and (texts or number in self._used or not set(keys.values()) <= {*bullets}):
                continue
            update = {"lessons": mine} | {
                name: [bullets.get(keys.get(key, ""), key) for key in operation[name]]
                for name in ("source_ids", "contradicts")
            }
            key = operation["bullet_id"]
            update["bullet_id"] = bullets.get(keys.get(key, ""), key)
            if number in self._used and operation["type"] in ("ADD", "UPDATE"):
                key = bullets.get(operation["content"])
                update |= {"type": "KEEP", "bullet_id": key} if key else {}
            self._used.add(number)
            operations.append(operation | update)
        return json.dumps({"reasoning": "", "operations": operations}, ensure_ascii=False)

    def _operations(self) -> Iterator[tuple[dict[str, Any], list[str], dict[str, str]]]:
        """Each operation with the texts of its lessons, and the text of each bullet by key."""
        for recording in self.recorded:
            texts = {int(number): text for number, text in _LESSON.findall(recording.prompt)}
            keys = dict(_BULLET.findall(recording.prompt))
            for operation in json.loads(recording.answer)["operations"]:
                named = {operation["bullet_id"], *operation["source_ids"]} - {None}
                lessons = [texts[n] for n in operation["lessons"] if n in texts]
                yield operation, lessons, {k: t for k, t in keys.items() if k in named}


def labeled_pairs(folder: Path) -> Iterator[tuple[str, str]]:
    """The contents of two bullets that a careful reader would merge."""
    file = folder / "duplicates.json"
    if file.exists():
        yield from (tuple(pair) for pair in json.loads(file.read_text(encoding="utf8")))


async def find_run(runtime: Runtime, ticket: Ticket) -> tuple[str, str]:
    """The kind of a run, and the name of the agent run."""
    async with runtime.sessions.for_tenant(ticket.tenant_id) as session:
        run = await get_run(session, ticket.run_id)
        trace = await get_trace(session, run.trace_id) if run and run.trace_id else None
        return (run.kind, str(trace.external_id)) if run and trace else ("", str(ticket.run_id))
