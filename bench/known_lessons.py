"""How often a prompt of `bench curate` shows the bullet that its answer repeats.

A reader names known lessons in `same_as`, and only those that the prompt shows. What it did not
see, the curator joins to a bullet later. So the bullets that a prompt should have shown are those
of `same_as` and those that the curator kept, updated or merged because of its lessons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import text

from bench.recordings import Recording
from memory_api.runtime import Runtime

_LESSONS = re.compile(r"<lessons-…>\n(.*?)\n</lessons-…>", re.DOTALL)
_LESSON = re.compile(r"^\[L\d+\] (.+)$", re.MULTILINE)
_BULLETS = text(
    "select id, coalesce(when_to_use, '') when_to_use, content from memories"
    " where tenant_id = :tenant and kind = 'bullet' and status = 'active'"
)
_JOINED = text(
    "select t.external_id, c.bullet_id from curated_lessons c"
    " join memories m on m.tenant_id = :tenant and m.id = c.memory_id"
    " join traces t on t.tenant_id = :tenant and t.id = m.trace_id"
    " where c.tenant_id = :tenant and c.decision in ('already_known', 'updated', 'merged')"
)


@dataclass
class KnownLessons:
    """Counts of one replay: bullets that reflections repeat, those of them that their prompts
    showed, and the names of the other prompts.
    """

    shown_count: int = 0
    repeated_count: int = 0
    lacking: list[str] = field(default_factory=list[str])
    _bullets: dict[UUID, str] = field(default_factory=dict[UUID, str])

    async def start_wave(self, runtime: Runtime, tenant_id: UUID) -> None:
        """Remember the bullets that the prompts of this wave can show."""
        async with runtime.sessions.for_tenant(tenant_id) as session:
            rows = (await session.execute(_BULLETS, {"tenant": tenant_id})).all()
        self._bullets = {
            row.id: _one_line(f"{row.when_to_use}: {row.content}".removeprefix(": "))
            for row in rows
        }

    async def end_wave(self, runtime: Runtime, tenant_id: UUID, used: Iterable[Recording]) -> None:
        """Count what the reflections of the wave repeated."""
        async with runtime.sessions.for_tenant(tenant_id) as session:
            joined = (await session.execute(_JOINED, {"tenant": tenant_id})).all()
        for recording in used:
            if recording.purpose != "reflect":
                continue
            shown = _shown_lessons(recording.prompt)
            named = json.loads(recording.answer).get("same_as", [])
            repeated = {
                self._bullets[row.bullet_id]
                for row in joined
                if recording.name.startswith(f"reflect-{row.external_id}")
                and row.bullet_id in self._bullets
            }
            unseen = repeated - set(shown)
            self.shown_count += len(named) + len(repeated) - len(unseen)
            self.repeated_count += len(named) + len(repeated)
            self.lacking += [recording.name] * len(unseen)

    def row(self) -> tuple[int, int, str]:
        """Bullets repeated, shown, and the names of the prompts that lack one."""
        return self.repeated_count, self.shown_count, " ".join(self.lacking) or "none"


def _shown_lessons(prompt: str) -> Sequence[str]:
    section = _LESSONS.search(prompt)
    return _LESSON.findall(section[1]) if section else []


def _one_line(content: str) -> str:
    return " ".join(content.split())
