"""Retrieves bullets: the hits of a search, and the prompt block of a render."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Unpack
from uuid import UUID

import asyncpg

from memory_api.core.ids import new_signed_id
from memory_api.core.metrics import RENDER_DURATION, observe_duration
from memory_api.core.tracing import span
from memory_api.memories.schemas import Match
from memory_api.memories.search.query import (
    MIN_RELEVANCE,
    PlaybookHeader,
    SearchFilters,
    SearchHit,
    SearchOptions,
)
from memory_api.memories.search.search import search_text
from memory_api.playbooks.bullet_rows import BULLET_COLUMNS, FoundBullet, parse_sections
from memory_api.playbooks.effects.holdout import draw_holdout, is_advice_held_out
from memory_api.playbooks.errors import PlaybookNotFound
from memory_api.playbooks.models import TRIAL
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.retrieval.prompt_block import BulletFormat, PromptBlock, render_block
from memory_api.playbooks.retrieval.queries import (
    RetrievalRecord,
    count_unproven_harmful_verdicts,
    insert_retrieval,
    load_retrieval_secret,
)
from memory_api.playbooks.sections import SectionDefinition
from memory_api.playbooks.usefulness import is_harmful
from memory_api.runtime import Runtime

DEFAULT_TOKEN_BUDGET = 2_000
"""Token budget of a render if neither the request nor the playbook sets one."""
DEFAULT_TOP_K = 100
"""Bullets that a render considers if the request does not say."""
MISSING_PLAYBOOK = PlaybookHeader(
    scope_id=0, version=0, settings={"sections": [], "token_budget": None, "holdout_share": 0.0}
)
"""Stands for a playbook that does not exist. No scope has the ID 0."""


@dataclass(frozen=True)
class RetrievedBullets:
    """The hits of a search, and the retrieval that a trace can name."""

    retrieval_id: UUID
    version: int
    hits: Sequence[SearchHit[FoundBullet]]
    sections: Sequence[SectionDefinition] = ()
    """Those of the playbook."""


@dataclass(frozen=True)
class RenderedPlaybook:
    """A prompt block, its bullets and its retrieval. `left_out` counts bullets that did not fit the
    budget; `held_out` is the bullet that the holdout experiment withheld. `advice_held_out`: the
    whole block was withheld.
    """

    retrieval_id: UUID
    version: int
    block: PromptBlock
    left_out: int = 0
    held_out: str | None = None
    bullets: Sequence[FoundBullet] = ()
    advice_held_out: bool = False


@dataclass(frozen=True)
class RenderOptions:
    """What to put into a prompt. Sections in any spelling, or by slug."""

    query_text: str = ""
    token_budget: int | None = None
    top_k: int = DEFAULT_TOP_K
    form: BulletFormat = "prompt"
    sections: Sequence[str] = field(default_factory=tuple[str, ...])
    min_match: Match = "none"
    """The least match of a bullet with the query, for a playbook that does not fit the budget."""
    holdout: float | None = None
    """Share of renders that withhold a bullet, 0 to 1; None for the playbook's own. 0: the block is
    not withheld either.
    """
    session_id: str | None = None
    """Renders of one session get advice all or none."""
    include_trials: bool = True
    """Whether to render advice that nobody has shown to work."""


RenderDecision = Literal["rendered", "no_room", "harmful"]


@dataclass(frozen=True)
class RenderPreview:
    """A prompt block, and each bullet that was considered for it, best first."""

    block: PromptBlock
    decisions: Sequence[tuple[SearchHit[FoundBullet], RenderDecision]]


async def search_bullets(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: PlaybookRef,
    query_text: str,
    **options: Unpack[SearchOptions],
) -> RetrievedBullets:
    """The best bullets for a query; an empty query lists them by usefulness. Raises
    `PlaybookNotFound`.
    """
    secret = await load_retrieval_secret(runtime.sessions, tenant_id)
    async with _search(runtime, tenant_id, playbook, query_text, **options) as found:
        retrieval_id = new_signed_id(secret, found.header.scope_id)
        record = _record(retrieval_id, "search", query_text, found.header, found.hits)
        await insert_retrieval(found.connection, tenant_id, record)
    sections = parse_sections(found.header.settings["sections"])
    return RetrievedBullets(retrieval_id, found.header.version, found.hits, sections)


async def preview_search(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: PlaybookRef,
    query_text: str,
    **options: Unpack[SearchOptions],
) -> Sequence[SearchHit[FoundBullet]]:
    """What `search_bullets` would return. A person looks at it: it is not stored as a retrieval and
    changes no statistics. Raises `PlaybookNotFound`.
    """
    async with _search(runtime, tenant_id, playbook, query_text, **options) as found:
        return found.hits


async def preview_render(
    runtime: Runtime, tenant_id: UUID, playbook: PlaybookRef, options: RenderOptions
) -> RenderPreview:
    """What `render_playbook` would put into a prompt, and why. A person looks at it: it is not
    stored as a retrieval and withholds nothing. Raises `PlaybookNotFound`.
    """
    search_options = _search_options(options)
    search_options["explain"] = True
    async with _search(runtime, tenant_id, playbook, options.query_text, **search_options) as found:
        hits, block = await _fill_block(found, tenant_id, options)
    in_block, harmless = frozenset(block.keys), {hit.memory.key for hit in hits}
    reasons: list[RenderDecision] = [
        "rendered" if key in in_block else "no_room" if key in harmless else "harmful"
        for key in (hit.memory.key for hit in found.hits)
    ]
    return RenderPreview(block, list(zip(found.hits, reasons, strict=True)))


async def render_playbook(
    runtime: Runtime, tenant_id: UUID, playbook: PlaybookRef, options: RenderOptions
) -> RenderedPlaybook:
    """The block for a prompt: all bullets, or the best ones if they do not fit the budget, without
    those that are certainly harmful. Empty for a playbook that is empty or does not exist: an agent
    may ask before its first run has created it.
    """
    with observe_duration(RENDER_DURATION), span("render"):
        return await _render_bullets(runtime, tenant_id, playbook, options)


async def _render_bullets(
    runtime: Runtime, tenant_id: UUID, playbook: PlaybookRef, options: RenderOptions
) -> RenderedPlaybook:
    secret = await load_retrieval_secret(runtime.sessions, tenant_id)
    async with _search(
        runtime,
        tenant_id,
        playbook,
        options.query_text,
        allow_missing=True,
        **_search_options(options),
    ) as found:
        header = found.header
        hits, block = await _fill_block(found, tenant_id, options)
        left_out = len(hits) - len(block.keys)
        in_block = frozenset(block.keys)
        shown = [hit for hit in hits if hit.memory.key in in_block]
        retrieval_id = new_signed_id(secret, header.scope_id)
        advice_share = 0.0 if options.holdout == 0 else runtime.settings.advice_holdout_share
        advice_held_out: bool | None = None
        if advice_share and block.keys:
            session = options.session_id or str(retrieval_id)
            advice_held_out = is_advice_held_out(secret, header.scope_id, session, advice_share)
        if advice_held_out:
            shown, block = [], PromptBlock("", (), 0)
        share = options.holdout if options.holdout is not None else header.settings["holdout_share"]
        keys = [hit.memory.key for hit in shown if not hit.memory.pinned]
        draw = draw_holdout(retrieval_id, keys, share)
        held_out = draw.candidate if draw is not None and draw.held_out else None
        if held_out is not None:
            # No other bullet takes its place: that would be a second difference.
            shown = [hit for hit in shown if hit.memory.key != held_out]
            block = _render(header, shown, options)
        record = _record(retrieval_id, "render", options.query_text, header, shown)
        record = replace(record, advice_held_out=advice_held_out)
        if draw is not None:
            record = replace(record, holdout_candidate=draw.candidate, held_out=draw.held_out)
        await insert_retrieval(found.connection, tenant_id, record)
    bullets = [hit.memory for hit in shown]
    return RenderedPlaybook(
        retrieval_id, header.version, block, left_out, held_out, bullets, bool(advice_held_out)
    )


@dataclass(frozen=True)
class _Found:
    """The result of a search, and its connection until the block ends."""

    header: PlaybookHeader
    hits: list[SearchHit[FoundBullet]]
    connection: asyncpg.Connection[Any]


@asynccontextmanager
async def _search(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: PlaybookRef,
    query_text: str,
    *,
    allow_missing: bool = False,
    **options: Unpack[SearchOptions],
) -> AsyncGenerator[_Found]:
    options["with_header"] = True
    embedder = await runtime.get_tenant_embedder(tenant_id)
    addresses = [playbook.address]
    search = search_text(
        runtime.sessions, embedder, tenant_id, query_text, addresses, BULLET_COLUMNS, options
    )
    async with search as (results, connection):
        if results.header is not None:
            yield _Found(results.header, results.hits, connection)
        elif allow_missing:
            yield _Found(MISSING_PLAYBOOK, [], connection)
        else:
            raise PlaybookNotFound


def _search_options(options: RenderOptions) -> SearchOptions:
    return SearchOptions(top_k=options.top_k, filters=SearchFilters(sections=options.sections))


async def _fill_block(
    found: _Found, tenant_id: UUID, options: RenderOptions
) -> tuple[list[SearchHit[FoundBullet]], PromptBlock]:
    """The hits that may be rendered, and the block: of all of them, or of those that match the
    query if not all fit.
    """
    hits = await _drop_harmful(found, tenant_id)
    if not options.include_trials:
        hits = [hit for hit in hits if not hit.memory.content.startswith(TRIAL)]
    block = _render(found.header, hits, options)
    if block.left_out or len(found.hits) >= options.top_k:
        block = _render(found.header, _matching(hits, options.min_match), options)
    return hits, block


async def _drop_harmful(found: _Found, tenant_id: UUID) -> list[SearchHit[FoundBullet]]:
    """Without the bullets that credible verdicts show to be harmful. A client may invent traces, so
    the verdicts on suspicious bullets, which are rare, are counted as for a quarantine.
    """
    hits = found.hits
    suspicious = [
        hit.memory.key
        for hit in hits
        if hit.memory.harmful and is_harmful(hit.memory.helpful, hit.memory.harmful)
    ]
    if not suspicious:
        return hits
    unproven = await count_unproven_harmful_verdicts(
        found.connection, tenant_id, found.header.scope_id, suspicious
    )
    return [
        hit
        for hit in hits
        if hit.memory.key not in suspicious
        or not is_harmful(hit.memory.helpful, hit.memory.harmful - unproven.get(hit.memory.key, 0))
    ]


def _matching(
    hits: Sequence[SearchHit[FoundBullet]], least: Match
) -> Sequence[SearchHit[FoundBullet]]:
    """The hits that match the query at least so. Without a query there is nothing to match."""
    return [hit for hit in hits if hit.match is None or hit.relevance >= MIN_RELEVANCE[least]]


def _record(
    retrieval_id: UUID,
    kind: Literal["search", "render"],
    query_text: str,
    header: PlaybookHeader,
    hits: Sequence[SearchHit[FoundBullet]],
) -> RetrievalRecord:
    return RetrievalRecord(
        retrieval_id,
        header.scope_id,
        header.version,
        kind,
        query_text,
        bullet_keys=[hit.memory.key for hit in hits],
        scores=[hit.combined_score for hit in hits],
    )


def _render(
    header: PlaybookHeader, hits: Sequence[SearchHit[FoundBullet]], options: RenderOptions
) -> PromptBlock:
    budgets = (options.token_budget, header.settings["token_budget"], DEFAULT_TOKEN_BUDGET)
    return render_block(
        [hit.memory for hit in hits],
        token_budget=next(budget for budget in budgets if budget is not None),
        form=options.form,
    )
