"""Handing out bullets: the hits of a search, and the block for a prompt. Both are servings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Unpack
from uuid import UUID

from apps.memory_api.core.ids import new_id
from apps.memory_api.memory.aside import search_text
from apps.memory_api.memory.find import Filters, How
from apps.memory_api.memory.found import Head, Hit
from apps.memory_api.playbook.errors import NoPlaybook
from apps.memory_api.playbook.holdout import draw
from apps.memory_api.playbook.render import Form, Rendered, render
from apps.memory_api.playbook.rows import Place, sections_in, to_bullet
from apps.memory_api.playbook.servings import Served, ServingLog
from apps.memory_api.playbook.usefulness import does_harm
from apps.memory_api.runtime import Runtime

TOKEN_BUDGET = 2_000
"""Of a render, where neither the request nor the playbook says."""
TOP_K = 100
"""Bullets that a render looks at when the request does not say."""


@dataclass(frozen=True)
class HandedOut:
    """What a search handed out, under the name by which a trace can refer to it."""

    render_id: UUID
    version: int
    hits: Sequence[Hit]


@dataclass(frozen=True)
class Block:
    """A rendered playbook, and the serving it is."""

    render_id: UUID
    version: int
    rendered: Rendered
    left_out: int = 0
    """Bullets that were good and did not fit."""
    held_out: str | None = None
    """The bullet that the lot left out."""


@dataclass(frozen=True)
class Order:
    """What to put in a prompt. Sections in any spelling, or by slug."""

    query_text: str = ""
    token_budget: int | None = None
    top_k: int = TOP_K
    form: Form = "prompt"
    sections: Sequence[str] = field(default_factory=tuple[str, ...])
    holdout: float | None = None
    """Share of renders that leave out a bullet; None: the playbook's."""


async def search_bullets(
    runtime: Runtime,
    servings: ServingLog,
    tenant_id: UUID,
    place: Place,
    query_text: str,
    *,
    harmless: bool = False,
    **how: Unpack[How],
) -> HandedOut:
    """The best bullets for a query; a query of nothing lists by usefulness. `harmless`: without
    those that surely do harm. Raises `NoPlaybook`.
    """
    head, hits = await _look_up(runtime, tenant_id, place, query_text, **how)
    hits = _harmless(hits) if harmless else hits
    served = _served(tenant_id, head, "search", query_text, hits)
    return HandedOut(servings.add(served), head.version, hits)


async def render_playbook(
    runtime: Runtime, servings: ServingLog, tenant_id: UUID, place: Place, order: Order
) -> Block:
    """The block for a prompt: the best bullets that fit the budget, without those that surely do
    harm. An empty playbook gives an empty text. Raises `NoPlaybook`.
    """
    how = How(top_k=order.top_k, filters=Filters(sections=order.sections))
    head, hits = await _look_up(runtime, tenant_id, place, order.query_text, **how)
    good = _harmless(hits)
    rendered = _render(head, good, order)
    left_out = rendered.left_out
    shown = [hit for hit in good if hit.memory.key in rendered.keys]
    share = order.holdout if order.holdout is not None else head.settings["holdout"]
    render_id = new_id()
    lot = draw(render_id, [hit.memory.key or "" for hit in shown if not hit.memory.pinned], share)
    if lot is not None and lot.held_out:
        # What else is in the block stays as it is: a bullet that moved up would be a second change.
        shown = [hit for hit in shown if hit.memory.key != lot.candidate]
        rendered = _render(head, shown, order)
    served = _served(tenant_id, head, "render", order.query_text, shown)
    drawn = {"candidate": lot.candidate, "held_out": lot.held_out} if lot is not None else {}
    servings.add(replace(served, render_id=render_id, **drawn))
    held_out = lot.candidate if lot is not None and lot.held_out else None
    return Block(render_id, head.version, rendered, left_out, held_out)


async def _look_up(
    runtime: Runtime, tenant_id: UUID, place: Place, query_text: str, **how: Unpack[How]
) -> tuple[Head, list[Hit]]:
    how["head"] = True
    embedder = await runtime.embedder_of(tenant_id)
    found = await search_text(
        runtime.sessions, embedder, tenant_id, query_text, [place.address], **how
    )
    if found.head is None:
        raise NoPlaybook
    return found.head, found.hits


def _harmless(hits: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in hits if not does_harm(hit.memory.helpful, hit.memory.harmful)]


def _served(
    tenant_id: UUID, head: Head, kind: Literal["search", "render"], query: str, hits: Sequence[Hit]
) -> Served:
    return Served(
        tenant_id,
        head.scope,
        head.version,
        kind,
        query,
        memory_ids=[hit.memory.id for hit in hits],
        keys=[hit.memory.key or "" for hit in hits],
        scores=[hit.combined_score for hit in hits],
    )


def _render(head: Head, hits: Sequence[Hit], order: Order) -> Rendered:
    wanted = (order.token_budget, head.settings["token_budget"], TOKEN_BUDGET)
    return render(
        [to_bullet(hit.memory) for hit in hits],
        sections_in(head.settings["sections"]),
        token_budget=next(budget for budget in wanted if budget is not None),
        form=order.form,
    )
