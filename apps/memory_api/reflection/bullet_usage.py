"""The bullets that an agent run used: named by the client, cited by the agent, or served to it.

`lexical_overlap` estimates which bullets a transcript without citations is about. Only the agent's
own messages and calls count: what the agent read may be written by anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.memories.schemas import MemoryStatus
from memory_api.playbooks.bullet_rows import bullets_by_key, to_bullet
from memory_api.playbooks.citations import extract_cited_ids, resolve_citations
from memory_api.playbooks.models import Bullet, format_advice, parse_key
from memory_api.playbooks.queries import find_bullets, list_bullets_as_of
from memory_api.playbooks.ref import PlaybookRef
from memory_api.text.terms import tokenize
from memory_api.trace_analysis.arguments import as_items
from memory_api.traces.schemas import Event, EventType
from memory_api.traces.tables import TraceRow

USED_BULLETS = load_statement("reflection/credit/credit.sql", "used")
UsageKind = Literal["named", "cited", "served"]
"""How a use is known, most certain first: the client names the bullet, the agent cites it, or a
retrieval put it into the prompt.
"""
MAX_USED_BULLETS = 200
"""Bullets of one trace. The most certain uses are taken."""
_MAX_KEY_DIGITS = 9


@dataclass(frozen=True)
class UsedBullet:
    """A bullet in its current form. `retrieval_id` is set if the retrieval of the trace served it,
    also when `usage` is named or cited.
    """

    key: str
    bullet: Bullet
    usage: UsageKind
    retrieval_id: UUID | None
    memory_id: UUID

    @property
    def advice(self) -> str:
        """Title, condition and content as one text."""
        return format_advice(self.bullet.title, self.bullet.when_to_use, self.bullet.content)


@dataclass(frozen=True)
class BulletUsage:
    """The playbook of a trace and what the trace used of it."""

    playbook: PlaybookRef | None = None
    """The playbook that the trace names, otherwise the playbook of its retrieval."""
    bullets: Sequence[UsedBullet] = ()
    """Each bullet once, most certain use first. A merged key stands for the bullet that replaced
    it; unknown and ambiguous keys are left out.
    """
    served_texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key → title, condition and content of each used bullet, now and as it was served."""
    focus: str | None = None
    """What the owner of the playbook wants to keep."""


async def load_bullet_usage(
    session: AsyncSession, trace: TraceRow, events: Sequence[Event]
) -> BulletUsage:
    """Two statements, and two more if a retrieval served bullets."""
    playbook = await _load_playbook(session, trace)
    if playbook is None:
        return BulletUsage()
    used = await _find_used_bullets(session, trace, events, playbook)
    texts = {item.key: item.advice for item in used}
    texts |= await _load_served_texts(session, playbook)
    ref = PlaybookRef(playbook.project_id, playbook.name)
    return BulletUsage(ref, used, texts, playbook.focus)


async def _find_used_bullets(
    session: AsyncSession, trace: TraceRow, events: Sequence[Event], playbook: Any
) -> list[UsedBullet]:
    slugs = [str(section["slug"]) for section in playbook.sections]
    cited = extract_cited_ids(_agent_messages(trace, events), slugs)
    names = list(dict.fromkeys([*trace.used_bullet_keys, *cited, *playbook.bullet_keys]))
    if not names:
        return []
    rows = await find_bullets(session, playbook.scope_id, _possible_keys(names, playbook.aliases))
    existing = {key: row for key, row in rows.items() if row.status != MemoryStatus.DELETED}
    key_of = resolve_citations(names, existing, playbook.aliases)
    served = {key_of[name] for name in playbook.bullet_keys if name in key_of}
    used: dict[str, UsedBullet] = {}
    names_by_usage: tuple[tuple[UsageKind, Iterable[str]], ...] = (
        ("named", trace.used_bullet_keys),
        ("cited", cited),
        ("served", playbook.bullet_keys),
    )
    for usage, usage_names in names_by_usage:
        for key in (key_of[name] for name in usage_names if name in key_of):
            if key not in used and len(used) < MAX_USED_BULLETS:
                retrieval_id = playbook.retrieval_id if key in served else None
                row = existing[key]
                used[key] = UsedBullet(key, to_bullet(row), usage, retrieval_id, row.id)
    return list(used.values())


async def _load_served_texts(session: AsyncSession, playbook: Any) -> dict[str, str]:
    """The texts of the served bullets in the playbook version that was served."""
    if not playbook.bullet_keys:
        return {}
    rows = await find_bullets(session, playbook.scope_id, playbook.bullet_keys)
    ids = [row.id for row in rows.values()]
    served = await list_bullets_as_of(session, playbook.scope_id, playbook.version, ids)
    return {
        key: format_advice(bullet.title, bullet.when_to_use, bullet.content)
        for key, bullet in bullets_by_key(served).items()
    }


async def _load_playbook(session: AsyncSession, trace: TraceRow) -> Any:
    """A row of the block `used`; None without a playbook."""
    if trace.playbook is None and trace.retrieval_id is None:
        return None
    parameters = {
        "tenant": current_tenant_id(session),
        "project": trace.project_id,
        "name": trace.playbook,
        "retrieval": trace.retrieval_id,
    }
    rows = await fetch_rows(session, USED_BULLETS, parameters)
    return rows[0] if rows else None


def _agent_messages(trace: TraceRow, events: Sequence[Event]) -> list[Mapping[str, Any]]:
    """What the agent wrote. What it read cannot cite, above all the bullets in its prompt."""
    texts = [e.content for e in events if e.event_type == EventType.LLM_RESPONSE]
    texts += [step for step in as_items(trace.reasoning_steps) if isinstance(step, str)]
    if trace.generated_answer:
        texts.append(trace.generated_answer)
    return [{"role": "assistant", "content": text} for text in texts]


def _possible_keys(names: Iterable[str], aliases: Mapping[str, str]) -> list[str]:
    """The keys that `names` may mean: as written, with other leading zeros, and the keys that
    merged keys became. Reading all keys of the playbook is not needed, because the number of a key
    has at most nine digits.
    """
    survivors: dict[tuple[str, int] | str, set[str]] = {}
    for old, survivor in aliases.items():
        survivors.setdefault(old, set()).add(survivor)
        if parsed := parse_key(old):
            survivors.setdefault(parsed, set()).add(survivor)
    keys: dict[str, None] = {}
    for name in names:
        parsed = parse_key(name)
        keys[name] = None
        keys |= dict.fromkeys(survivors.get(name, ()))
        if parsed:
            slug, number = parsed
            separator = "_" if slug == "kpt" and name.startswith("kpt_") else "-"
            digits = range(1, _MAX_KEY_DIGITS + 1)
            keys |= dict.fromkeys(f"{slug}{separator}{number:0{width}d}" for width in digits)
            keys |= dict.fromkeys(survivors.get(parsed, ()))
    return list(keys)


AGENT_EVENT_TYPES = (EventType.LLM_RESPONSE, EventType.TOOL_CALL)
MIN_OVERLAP = 0.5
"""Share of a bullet's terms that the agent must have used."""
MIN_COMMON_TERMS = 2
"""Fewer terms in common count as no overlap."""


def lexical_overlap(events: Sequence[Event], bullets: Iterable[Bullet]) -> dict[str, float]:
    """Key → share of the bullet's terms that the agent used, 0 to 1."""
    agent_terms: set[str] = set()
    for event in events:
        if event.event_type in AGENT_EVENT_TYPES:
            agent_terms.update(tokenize(event.content))
            agent_terms.update(tokenize(event.tool_name or ""))
    return {bullet.id: _overlap(bullet, agent_terms) for bullet in bullets}


def _overlap(bullet: Bullet, agent_terms: set[str]) -> float:
    terms = set(tokenize(f"{bullet.when_to_use} {bullet.content}"))
    common_count = len(terms & agent_terms)
    return common_count / len(terms) if common_count >= MIN_COMMON_TERMS else 0.0
