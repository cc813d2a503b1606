"""Which bullets a run used: those it names, those its messages cite, those it was served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.memory.schemas import Status
from apps.memory_api.playbook.citations import extract_cited_ids, resolve
from apps.memory_api.playbook.keys import parse_key
from apps.memory_api.playbook.queries import bullets_as_of, find_bullets
from apps.memory_api.playbook.rows import Place, to_bullet
from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.traces.arguments import as_items
from apps.memory_api.traces.schemas import EventType
from apps.memory_api.traces.tables import Trace

USED = load(__file__, "used.sql")
How = Literal["named", "cited", "served"]
"""Surest first: the sender says so, the agent's own words say so, it stood in the prompt."""
MOST = 200
"""Bullets that one run is taken to have used; the surest are kept."""
_WIDTHS = range(1, 10)


class Said(Protocol):
    """An event, as a row or on the wire."""

    @property
    def event_type(self) -> str: ...
    @property
    def content(self) -> str: ...


@dataclass(frozen=True)
class UsedBullet:
    """A bullet as it is today. `render_id` is set where this run's render handed it out, however
    else the use is known.
    """

    key: str
    bullet: Bullet
    how: How
    render_id: UUID | None
    memory_id: UUID


@dataclass(frozen=True)
class Use:
    """What a run had of its playbook."""

    place: Place | None = None
    """The playbook it belongs to: the one it names, else the one its render came from."""
    bullets: Sequence[UsedBullet] = ()
    """Each once, the surest first; a merged key means its survivor, and ids that mean no bullet, or
    not only one, are left out.
    """
    told: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key → what stood in its prompt: title, when to use it, content, in the words of today and of
    then.
    """


async def use_of(session: AsyncSession, trace: Trace, events: Sequence[Said]) -> Use:
    """Two statements, and two more where a render handed something out."""
    home = await _home(session, trace)
    if home is None:
        return Use()
    used = await _used(session, trace, events, home)
    told = {one.key: text_of(one.bullet) for one in used} | await _served_texts(session, home)
    return Use(Place(home.project_id, home.name), used, told)


async def place_of(session: AsyncSession, trace: Trace) -> Place | None:
    """The playbook a run belongs to."""
    home = await _home(session, trace)
    return Place(home.project_id, home.name) if home is not None else None


async def _used(
    session: AsyncSession, trace: Trace, events: Sequence[Said], home: Any
) -> list[UsedBullet]:
    cited = extract_cited_ids(_messages(trace, events), _slugs(home.sections))
    asked = list(dict.fromkeys([*trace.used_keys, *cited, *home.keys]))
    if not asked:
        return []
    rows = await find_bullets(session, home.scope, _spellings(asked, home.aliases))
    alive = {key: row for key, row in rows.items() if row.status != Status.DELETED}
    meant = resolve(asked, alive, home.aliases)
    served = {meant[key] for key in home.keys if key in meant}
    found: dict[str, UsedBullet] = {}
    told: tuple[tuple[How, Iterable[str]], ...] = (
        ("named", trace.used_keys),
        ("cited", cited),
        ("served", home.keys),
    )
    for how, names in told:
        for key in (meant[name] for name in names if name in meant):
            if key not in found and len(found) < MOST:
                render_id = home.render_id if key in served else None
                row = alive[key]
                found[key] = UsedBullet(key, to_bullet(row), how, render_id, row.id)
    return list(found.values())


async def _served_texts(session: AsyncSession, home: Any) -> dict[str, str]:
    """What the bullets said when they were served to this run."""
    if not home.keys:
        return {}
    rows = await find_bullets(session, home.scope, home.keys)
    ids = [row.id for row in rows.values()]
    then = await bullets_as_of(session, home.scope, home.version, ids)
    return {row.key: text_of(row) for row in then}


def text_of(bullet: Any) -> str:
    """What of a bullet stands in a prompt, without its key."""
    return " ".join(p for p in (bullet.title, bullet.when_to_use, bullet.content) if p)


async def _home(session: AsyncSession, trace: Trace) -> Any:
    if trace.playbook is None and trace.render_id is None:
        return None
    given = {
        "tenant": tenant_of(session),
        "project": trace.project_id,
        "name": trace.playbook,
        "render": trace.render_id,
    }
    return (await session.execute(USED, given)).one_or_none()


def _messages(trace: Trace, events: Sequence[Said]) -> list[Mapping[str, Any]]:
    """The agent's own words; what it read, the block of bullets in its prompt first of all, cites
    nothing.
    """
    said = [e.content for e in events if e.event_type == EventType.LLM_RESPONSE]
    said += [step for step in as_items(trace.reasoning_steps) if isinstance(step, str)]
    if trace.generated_answer:
        said.append(trace.generated_answer)
    return [{"role": "assistant", "content": text} for text in said]


def _slugs(sections: Iterable[Mapping[str, Any]]) -> list[str]:
    return [str(section["slug"]) for section in sections]


def _spellings(asked: Iterable[str], aliases: Mapping[str, str]) -> list[str]:
    """The keys that may be meant: as written, with other zeros, and survivors of what was merged.

    A key's number has at most nine digits, so this spares reading all keys of the playbook.
    """
    merged: dict[tuple[str, int] | str, set[str]] = {}
    for old, survivor in aliases.items():
        merged.setdefault(old, set()).add(survivor)
        if parsed := parse_key(old):
            merged.setdefault(parsed, set()).add(survivor)
    keys: dict[str, None] = {}
    for name in asked:
        parsed = parse_key(name)
        keys[name] = None
        keys |= dict.fromkeys(merged.get(name, ()))
        if parsed:
            slug, number = parsed
            mark = "_" if slug == "kpt" and name.startswith("kpt_") else "-"
            keys |= dict.fromkeys(f"{slug}{mark}{number:0{width}d}" for width in _WIDTHS)
            keys |= dict.fromkeys(merged.get(parsed, ()))
    return list(keys)
