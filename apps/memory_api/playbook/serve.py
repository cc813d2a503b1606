"""Handing out bullets: the hits of a search, and the block for a prompt. Both are servings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import UUID

import numpy as np
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.ids import new_id
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.memory.find import (
    Filters,
    Hit,
    How,
    Question,
    RankBy,
    ask,
    search,
    search_once,
)
from apps.memory_api.playbook.edit import find_playbook
from apps.memory_api.playbook.holdout import draw
from apps.memory_api.playbook.queries import section_labels
from apps.memory_api.playbook.render import Rendered, estimate_tokens, format_playbook, render
from apps.memory_api.playbook.rows import Place, sections_of, to_bullet
from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.playbook.sections import find_section, normal_name
from apps.memory_api.playbook.servings import Served, ServingLog
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.playbook.usefulness import does_harm
from apps.memory_api.runtime import Runtime

MIN_CONFIDENCE = 0.3
"""Spec 2's default, of `search` alone."""
TOKEN_BUDGET = 2_000
"""Of a render, where neither the request nor the playbook says."""
TOP_K = 100
"""Bullets that a render looks at when the request does not say."""

Fusion = Literal["anchored", "minmax", "rrf"]
Form = Literal["prompt", "ace"]


@dataclass(frozen=True)
class Wish:
    """What to look for in one playbook. Sections in any spelling; lists mean any of."""

    query_text: str = ""
    top_k: int = 10
    sections: Sequence[str] = ()
    tags: Sequence[str] = ()
    min_confidence: float = MIN_CONFIDENCE
    fusion: Fusion = "anchored"
    alpha: float | None = None
    rank_by: RankBy = "score"
    explain: bool = False


@dataclass(frozen=True)
class Found:
    """What was handed out, under the name by which a trace can refer to it."""

    render_id: UUID
    version: int
    hits: Sequence[Hit]


@dataclass(frozen=True)
class Block:
    """A rendered playbook, and the serving it is."""

    render_id: UUID
    version: int
    rendered: Rendered
    held_out: str | None = None
    """The bullet that the lot left out."""


@dataclass(frozen=True)
class Order:
    """What to put in a prompt."""

    query_text: str = ""
    token_budget: int | None = None
    top_k: int = TOP_K
    form: Form = "prompt"
    sections: Sequence[str] = field(default_factory=tuple[str, ...])
    holdout: float | None = None
    """Share of renders that leave out a bullet; None: the playbook's."""


async def search_bullets(
    runtime: Runtime, servings: ServingLog, tenant_id: UUID, place: Place, wish: Wish
) -> Found:
    """The best bullets for a query; a query of nothing lists by usefulness. Raises `NoPlaybook`."""
    question = await _ask(await runtime.embedder_of(tenant_id), wish.query_text)
    found = None if wish.sections else await _at_once(runtime, tenant_id, place, question, wish)
    if found is None:
        async with runtime.sessions.tenant(tenant_id) as session:
            playbook = await find_playbook(session, place)
            hits = await _hits(session, playbook, place, question, wish)
        found = playbook.scope, playbook.version, hits
    scope, version, hits = found
    served = _served(tenant_id, scope, version, "search", wish.query_text, hits)
    return Found(servings.add(served), version, hits)


async def _at_once(
    runtime: Runtime, tenant_id: UUID, place: Place, question: Question, wish: Wish
) -> tuple[int, int, list[Hit]] | None:
    """Scope, version and hits in one round trip. None when nothing is found: whether there is such
    a playbook has to be asked for.
    """
    if wish.top_k == 0:
        return None
    hits = await search_once(
        runtime.sessions, tenant_id, question, [place.address], **_how(wish, ())
    )
    if not hits or hits[0].playbook_version is None:
        return None
    return hits[0].memory.scope, hits[0].playbook_version, hits


async def render_playbook(
    runtime: Runtime, servings: ServingLog, tenant_id: UUID, place: Place, order: Order
) -> Block:
    """The block for a prompt: the best bullets that fit the budget, without those that surely do
    harm. An empty playbook gives an empty text. Raises `NoPlaybook`.
    """
    question = await _ask(await runtime.embedder_of(tenant_id), order.query_text)
    wish = Wish(order.query_text, order.top_k, order.sections, min_confidence=0.0)
    async with runtime.sessions.tenant(tenant_id) as session:
        playbook = await find_playbook(session, place)
        hits = await _hits(session, playbook, place, question, wish)
    good = [hit for hit in hits if not does_harm(hit.memory.helpful, hit.memory.harmful)]
    budget = order.token_budget if order.token_budget is not None else playbook.token_budget
    budget = TOKEN_BUDGET if budget is None else budget
    rendered = _render(playbook, good, budget, order.form)
    shown = [hit for hit in good if hit.memory.key in rendered.keys]
    share = order.holdout if order.holdout is not None else playbook.holdout
    render_id = new_id()
    lot = draw(render_id, [hit.memory.key or "" for hit in shown if not hit.memory.pinned], share)
    if lot is not None and lot.held_out:
        # What else is in the block stays as it is: a bullet that moved up would be a second change.
        shown = [hit for hit in shown if hit.memory.key != lot.candidate]
        rendered = _render(playbook, shown, budget, order.form)
    served = _served(tenant_id, playbook.scope, playbook.version, "render", order.query_text, shown)
    drawn = {"candidate": lot.candidate, "held_out": lot.held_out} if lot is not None else {}
    servings.add(replace(served, render_id=render_id, **drawn))
    held_out = lot.candidate if lot is not None and lot.held_out else None
    return Block(render_id, playbook.version, rendered, held_out)


async def _ask(embedder: Embedder, query_text: str) -> Question:
    """Nothing is embedded for a query that says nothing."""
    if query_text.strip():
        return await ask(embedder, query_text)
    return Question(embedder.model, np.zeros(1, np.float32), {})


async def _hits(
    session: AsyncSession, playbook: PlaybookRow, place: Place, question: Question, wish: Wish
) -> list[Hit]:
    if wish.top_k == 0:
        return []
    sections = await _spellings(session, playbook, wish.sections)
    if wish.sections and not sections:
        return []
    return await search(session, question, [place.address], **_how(wish, sections))


def _how(wish: Wish, sections: Sequence[str]) -> How:
    return How(
        top_k=wish.top_k,
        filters=Filters(sections=sections, tags=wish.tags, min_confidence=wish.min_confidence),
        fusion=wish.fusion,
        alpha=wish.alpha,
        explain=wish.explain,
        rank_by=wish.rank_by,
    )


async def _spellings(
    session: AsyncSession, playbook: PlaybookRow, names: Sequence[str]
) -> tuple[str, ...]:
    """Every spelling under which bullets of these sections are served; slugs are names too."""
    if not names:
        return ()
    defined = (find_section(sections_of(playbook), name) for name in names)
    wanted = {normal_name(section.name) for section in defined if section}
    wanted |= {normal_name(name) for name in names}
    return tuple(s for s in await section_labels(session) if normal_name(s) in wanted)


def _served(
    tenant_id: UUID,
    scope: int,
    version: int,
    kind: Literal["search", "render"],
    query: str,
    hits: Sequence[Hit],
) -> Served:
    return Served(
        tenant_id,
        scope,
        version,
        kind,
        query,
        memory_ids=[hit.memory.id for hit in hits],
        keys=[hit.memory.key or "" for hit in hits],
        scores=[hit.combined_score for hit in hits],
    )


def _render(playbook: PlaybookRow, hits: Sequence[Hit], budget: int, form: Form) -> Rendered:
    bullets = [to_bullet(hit.memory) for hit in hits]
    sections = sections_of(playbook)
    chosen = render(bullets, sections, token_budget=budget)
    if form == "prompt" or not chosen.keys:
        return chosen
    # The other form has longer lines (counters), so fewer may fit.
    places = {bullet.id: n for n, bullet in enumerate(bullets)}
    kept = sorted(chosen.keys, key=places.__getitem__)
    by_key = {bullet.id: bullet for bullet in bullets}
    while kept:
        order = [key for key in chosen.keys if key in kept]
        text = format_playbook({"sections": _points([by_key[key] for key in order])})
        tokens = estimate_tokens(text)
        if tokens <= budget:
            return Rendered(text, tuple(order), tokens)
        kept = kept[: max(0, min(len(kept) - 1, len(kept) * budget // tokens))]
    return Rendered("", (), 0)


def _points(bullets: Sequence[Bullet]) -> dict[str, list[dict[str, Any]]]:
    """As spec 4's form has them, in this order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for b in bullets:
        point = {"name": b.id, "text": b.content, "helpful": b.helpful, "harmful": b.harmful}
        groups.setdefault(b.section, []).append(point)
    return groups
