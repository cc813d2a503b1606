"""Retrieves bullets: the hits of a search, and the prompt block of a render."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Unpack
from uuid import UUID

from apps.memory_api.core.metrics import RENDER_DURATION, observe_duration
from apps.memory_api.core.tracing import span
from apps.memory_api.memories.search.query import (
    PlaybookHeader,
    SearchFilters,
    SearchHit,
    SearchOptions,
)
from apps.memory_api.memories.search.search import search_memories
from apps.memory_api.playbooks.bullet_rows import parse_sections, to_bullet_list
from apps.memory_api.playbooks.effects.holdout import draw_holdout
from apps.memory_api.playbooks.errors import PlaybookNotFound
from apps.memory_api.playbooks.ref import PlaybookRef
from apps.memory_api.playbooks.retrieval.log import (
    RetrievalRecord,
    insert_retrieval,
    new_retrieval_id,
)
from apps.memory_api.playbooks.retrieval.prompt_block import BulletFormat, PromptBlock, render_block
from apps.memory_api.playbooks.usefulness import is_harmful
from apps.memory_api.runtime import Runtime

DEFAULT_TOKEN_BUDGET = 2_000
"""Token budget of a render if neither the request nor the playbook sets one."""
DEFAULT_TOP_K = 100
"""Bullets that a render considers if the request does not say."""


@dataclass(frozen=True)
class RetrievedBullets:
    """The hits of a search, and the retrieval that a trace can name."""

    retrieval_id: UUID
    version: int
    hits: Sequence[SearchHit]


@dataclass(frozen=True)
class RenderedPlaybook:
    """A prompt block and its retrieval. `left_out` counts bullets that did not fit the budget;
    `held_out` is the bullet that the holdout experiment withheld.
    """

    retrieval_id: UUID
    version: int
    block: PromptBlock
    left_out: int = 0
    held_out: str | None = None


@dataclass(frozen=True)
class RenderOptions:
    """What to put into a prompt. Sections in any spelling, or by slug."""

    query_text: str = ""
    token_budget: int | None = None
    top_k: int = DEFAULT_TOP_K
    form: BulletFormat = "prompt"
    sections: Sequence[str] = field(default_factory=tuple[str, ...])
    holdout: float | None = None
    """Share of renders that withhold a bullet, 0 to 1; None for the playbook's own."""


async def search_bullets(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: PlaybookRef,
    query_text: str,
    *,
    without_harmful: bool = False,
    **options: Unpack[SearchOptions],
) -> RetrievedBullets:
    """The best bullets for a query; an empty query lists them by usefulness. `without_harmful`
    leaves out bullets that are certainly harmful. Raises `PlaybookNotFound`.
    """
    header, hits = await _search(runtime, tenant_id, playbook, query_text, **options)
    if without_harmful:
        hits = _drop_harmful(hits)
    retrieval_id = await new_retrieval_id(runtime.sessions, tenant_id, header.scope_id)
    record = _record(retrieval_id, "search", query_text, header, hits)
    await insert_retrieval(runtime.sessions, tenant_id, record)
    return RetrievedBullets(retrieval_id, header.version, hits)


async def preview_search(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: PlaybookRef,
    query_text: str,
    **options: Unpack[SearchOptions],
) -> Sequence[SearchHit]:
    """What `search_bullets` would return. A person looks at it: it is not stored as a retrieval and
    changes no statistics. Raises `PlaybookNotFound`.
    """
    _header, hits = await _search(runtime, tenant_id, playbook, query_text, **options)
    return hits


async def render_playbook(
    runtime: Runtime, tenant_id: UUID, playbook: PlaybookRef, options: RenderOptions
) -> RenderedPlaybook:
    """The block for a prompt: the best bullets that fit the budget, without those that are
    certainly harmful. Empty for an empty playbook. Raises `PlaybookNotFound`.
    """
    with observe_duration(RENDER_DURATION), span("render"):
        return await _render_bullets(runtime, tenant_id, playbook, options)


async def _render_bullets(
    runtime: Runtime, tenant_id: UUID, playbook: PlaybookRef, options: RenderOptions
) -> RenderedPlaybook:
    search_options = SearchOptions(
        top_k=options.top_k, filters=SearchFilters(sections=options.sections)
    )
    header, hits = await _search(runtime, tenant_id, playbook, options.query_text, **search_options)
    hits = _drop_harmful(hits)
    block = _render(header, hits, options)
    left_out = block.left_out
    shown = [hit for hit in hits if hit.memory.key in block.keys]
    retrieval_id = await new_retrieval_id(runtime.sessions, tenant_id, header.scope_id)
    share = options.holdout if options.holdout is not None else header.settings["holdout_share"]
    keys = [hit.memory.key or "" for hit in shown if not hit.memory.pinned]
    draw = draw_holdout(retrieval_id, keys, share)
    held_out = draw.candidate if draw is not None and draw.held_out else None
    if held_out is not None:
        # No other bullet takes its place: that would be a second difference.
        shown = [hit for hit in shown if hit.memory.key != held_out]
        block = _render(header, shown, options)
    record = _record(retrieval_id, "render", options.query_text, header, shown)
    if draw is not None:
        record = replace(record, holdout_candidate=draw.candidate, held_out=draw.held_out)
    await insert_retrieval(runtime.sessions, tenant_id, record)
    return RenderedPlaybook(retrieval_id, header.version, block, left_out, held_out)


async def _search(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: PlaybookRef,
    query_text: str,
    **options: Unpack[SearchOptions],
) -> tuple[PlaybookHeader, list[SearchHit]]:
    options["with_header"] = True
    embedder = await runtime.get_tenant_embedder(tenant_id)
    results = await search_memories(
        runtime.sessions, embedder, tenant_id, query_text, [playbook.address], **options
    )
    if results.header is None:
        raise PlaybookNotFound
    return results.header, results.hits


def _drop_harmful(hits: Sequence[SearchHit]) -> list[SearchHit]:
    return [hit for hit in hits if not is_harmful(hit.memory.helpful, hit.memory.harmful)]


def _record(
    retrieval_id: UUID,
    kind: Literal["search", "render"],
    query_text: str,
    header: PlaybookHeader,
    hits: Sequence[SearchHit],
) -> RetrievalRecord:
    return RetrievalRecord(
        retrieval_id,
        header.scope_id,
        header.version,
        kind,
        query_text,
        bullet_keys=[hit.memory.key or "" for hit in hits],
        scores=[hit.combined_score for hit in hits],
    )


def _render(
    header: PlaybookHeader, hits: Sequence[SearchHit], options: RenderOptions
) -> PromptBlock:
    budgets = (options.token_budget, header.settings["token_budget"], DEFAULT_TOKEN_BUDGET)
    return render_block(
        to_bullet_list(hit.memory for hit in hits),
        parse_sections(header.settings["sections"]),
        token_budget=next(budget for budget in budgets if budget is not None),
        form=options.form,
    )
