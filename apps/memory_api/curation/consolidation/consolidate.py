"""Consolidates a playbook with a model: merges, generalizes, splits and deletes bullets (ACE's
grow-and-refine), as one version. Pinned bullets do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import transaction_time
from memory_api.curation.apply import apply_plan
from memory_api.curation.consolidation.groups import BulletGroup, group_by_domain
from memory_api.curation.consolidation.model_output import (
    ConsolidationEvidence,
    validate_consolidation,
)
from memory_api.curation.consolidation.prompt import NAME, build_messages, pack_groups
from memory_api.curation.content_checks import is_too_long
from memory_api.curation.context import NearbyBullet, embed_texts, find_nearest_bullets, to_nearby
from memory_api.curation.model_output import ModelCuration, find_long_texts
from memory_api.curation.queries import (
    count_tasks,
    list_active_bullets,
    list_bullet_tools,
    list_rejected_merges,
)
from memory_api.curation.schemas import ApplyResult, CurationPlan, Decisions, RejectedLesson
from memory_api.embeddings.port import Embedder
from memory_api.llm.errors import LLMOverBudget
from memory_api.llm.model_session import ModelSession
from memory_api.llm.structured_output import request_structured
from memory_api.llm.wrappers import MeteredLLM
from memory_api.playbooks.editing.edits import require_playbook
from memory_api.playbooks.inbox.queries import get_curation, lock_curation
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.tables import PlaybookCurationRow, PlaybookRow
from memory_api.runtime import Runtime, open_model_session
from memory_api.text.terms import estimate_tokens

MIN_GROWTH_BULLETS = 8
"""Active bullets by which a playbook grows before it is consolidated."""
MAX_AGE = timedelta(days=1)
"""A changed playbook is consolidated after this time, whatever its growth."""
MIN_INTERVAL = timedelta(minutes=15)
"""Minimum time between two consolidations, also if the model fails."""
MAX_WHOLE_BULLETS = 200
"""A playbook with more bullets is not compared as a whole, even if it fits the prompt."""
MAX_CHANGED, MAX_NEAR = 50, 7
"""Changed bullets of a large playbook that are shown, the newest, and the nearest ones of each."""
MAX_PINNED = 30
"""Pinned bullets that a prompt shows as context."""
MAX_PROMPTS = 4
"""Model calls of one consolidation, for a large playbook."""
PROMPT_TOKENS_DIVISOR = 3
"""The bullets need at most a third of the tokens that a reflection may show."""


@dataclass(frozen=True)
class ConsolidationResult:
    """The result of one consolidation. `changes` are those of `ApplyResult.bullet_changes`."""

    group_count: int = 0
    changes: Sequence[Mapping[str, Any]] = ()
    rejected: Sequence[RejectedLesson] = ()
    proposal_id: UUID | None = None
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Material:
    """Groups of bullets of a version of a playbook, packed as prompts, with their evidence."""

    version: int
    prompts: Sequence[Sequence[BulletGroup]] = ()
    evidence: ConsolidationEvidence = field(default_factory=ConsolidationEvidence)
    pinned: Sequence[NearbyBullet] = ()


async def is_consolidation_due(
    session: AsyncSession, playbook: PlaybookRow, curation: PlaybookCurationRow | None
) -> bool:
    """Whether the playbook changed since its last consolidation, and has grown by 8 bullets,
    exceeds its token budget, or was not consolidated for a day.
    """
    version = curation.consolidated_version if curation else 0
    active_count = curation.consolidated_count if curation else 0
    consolidated_at = curation.consolidated_at if curation else None
    if playbook.version <= version:
        return False
    now = await transaction_time(session)
    if consolidated_at is not None and now - consolidated_at < MIN_INTERVAL:
        return False
    if playbook.active_count - active_count >= MIN_GROWTH_BULLETS:
        return True
    if now - (consolidated_at or playbook.created_at) >= MAX_AGE:
        return True
    return consolidated_at is not None and await _exceeds_token_budget(session, playbook)


async def _exceeds_token_budget(session: AsyncSession, playbook: PlaybookRow) -> bool:
    if playbook.token_budget is None:
        return False
    limit = playbook.token_budget + 1
    rows = await list_active_bullets(session, playbook.scope_id, pinned=False, limit=limit)
    tokens = sum(estimate_tokens(f"{row.when_to_use or ''} {row.content}") for row in rows)
    return tokens > playbook.token_budget


async def consolidate_if_due(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, run_id: UUID | None, *, force: bool = False
) -> ConsolidationResult:
    """Consolidate the playbook if that is due; with `force` at any time. Of a playbook that does
    not fit the prompt, the bullets near one that changed since the last consolidation, or with
    `force` the newest. Does nothing without a model.

    Raises `PlaybookNotFound` and the model's `LLMError`.
    """
    if runtime.llm is None:
        return ConsolidationResult()
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, ref)
        since = -1
        if not force:
            curation = await get_curation(session, playbook.scope_id)
            if not await is_consolidation_due(session, playbook, curation):
                return ConsolidationResult()
            since = curation.consolidated_version if curation else -1
        # A model that fails is not asked again at once.
        locked = await lock_curation(session, playbook.scope_id)
        locked.consolidated_at = await transaction_time(session)
    model = open_model_session(
        runtime,
        tenant_id,
        ref.name,
        run_id,
        project_id=ref.project_id,
        prompt_tokens=runtime.settings.llm_prompt_tokens // PROMPT_TOKENS_DIVISOR,
    )
    assert model is not None, "checked above"
    material = await _load_material(runtime, tenant_id, ref, since, model.prompt_tokens)
    try:
        return await _consolidate(runtime, tenant_id, ref, material, model)
    except LLMOverBudget as error:
        if not error.allows_rules:
            raise
        return ConsolidationResult()  # the rules cannot consolidate


async def _load_material(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, since: int, budget: int
) -> _Material:
    """The whole playbook if it fits one prompt of `budget` estimated tokens; else the bullets that
    changed after version `since`, and those near them.
    """
    embedder = await runtime.get_tenant_embedder(tenant_id)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, ref)
        list_bullets = partial(list_active_bullets, session, playbook.scope_id)
        rows = await list_bullets(pinned=False, limit=MAX_WHOLE_BULLETS + 1)
        bullets = [to_nearby(row) for row in reversed(rows)]
        if len(bullets) < 2 and not any(is_too_long(nearby.bullet) for nearby in bullets):
            return _Material(playbook.version)
        changed_rows = await list_bullets(pinned=False, since=since, limit=MAX_CHANGED)
        changed = [to_nearby(row) for row in reversed(changed_rows)]
        pinned_rows = await list_bullets(pinned=True, limit=MAX_PINNED)
        pinned = [to_nearby(row) for row in reversed(pinned_rows)]
    if len(bullets) <= MAX_WHOLE_BULLETS:
        material = await _pack(runtime, embedder, playbook, bullets, pinned, budget)
        if len(material.prompts) == 1:
            return material
    queries = await embed_texts(embedder, [n.bullet.searchable_text for n in changed])
    shown = {nearby.bullet.id: nearby for nearby in changed}
    async with runtime.sessions.for_tenant(tenant_id) as session:
        for query in queries:
            found = await find_nearest_bullets(session, ref, query)
            near = [nearby for nearby in found if not nearby.bullet.pinned]
            shown |= {nearby.bullet.id: nearby for nearby in near[: MAX_NEAR + 1]}
    return await _pack(runtime, embedder, playbook, list(shown.values()), pinned, budget)


async def _pack(
    runtime: Runtime,
    embedder: Embedder,
    playbook: PlaybookRow,
    bullets: Sequence[NearbyBullet],
    pinned: Sequence[NearbyBullet],
    budget: int,
) -> _Material:
    async with runtime.sessions.for_tenant(playbook.tenant_id) as session:
        evidence = await _load_evidence(session, playbook, bullets)
    queries = await embed_texts(embedder, [n.bullet.searchable_text for n in bullets])
    groups = group_by_domain(bullets, [query.vector for query in queries], evidence.tools)
    prompts = pack_groups(groups, evidence, budget)[:MAX_PROMPTS]
    return _Material(playbook.version, prompts, evidence, pinned)


async def _load_evidence(
    session: AsyncSession, playbook: PlaybookRow, bullets: Sequence[NearbyBullet]
) -> ConsolidationEvidence:
    keys = {nearby.id: nearby.bullet.id for nearby in bullets}
    tools = await list_bullet_tools(session, keys)
    tasks = await count_tasks(session, keys)
    return ConsolidationEvidence(
        {keys[bullet_id]: names for bullet_id, names in tools.items()},
        {keys[bullet_id]: count for bullet_id, count in tasks.items()},
        await list_rejected_merges(session, playbook.scope_id),
    )


async def _consolidate(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, material: _Material, model: ModelSession
) -> ConsolidationResult:
    validated = Decisions()
    prompt = model.prompt(NAME) if material.prompts else None
    metered = MeteredLLM(model.llm)
    for groups in material.prompts:
        assert prompt is not None, "there are groups"
        messages = build_messages(prompt, groups, material.evidence, material.pinned)
        request = model.request(
            messages.messages,
            cache_prefix=messages.cache_prefix,
            purpose="consolidate",
            prompt_hash=prompt.hash,
        )
        answer, _ = await request_structured(
            metered, ModelCuration, request, find_problem=find_long_texts
        )
        answered = validate_consolidation(answer, groups, material.evidence)
        validated.changes += answered.changes
        validated.rejected_lessons += answered.rejected_lessons
    plan = CurationPlan(
        version=material.version, changes=validated.changes, engine="llm" if prompt else "rules"
    )
    author = ChangeAuthor("curator", "Consolidation.", model.run_id)

    async def finish(session: AsyncSession, applied: ApplyResult) -> None:
        playbook = await get_playbook(session, ref)
        assert playbook is not None, "playbooks are never removed"
        curation = await lock_curation(session, playbook.scope_id)
        curation.consolidated_version = applied.version
        curation.consolidated_count = playbook.active_count
        await session.flush()

    applied = await apply_plan(runtime, tenant_id, ref, plan, author, on_applied=finish)
    return ConsolidationResult(
        sum(map(len, material.prompts)),
        applied.bullet_changes(),
        [*validated.rejected_lessons, *applied.rejected_lessons],
        applied.proposal_id,
        prompt.hash if prompt else None,
        metered.usage() if prompt else None,
    )
