"""Consolidates a playbook with a model: merges, generalizes, splits and deletes near bullets (ACE's
grow-and-refine), as one version. Pinned bullets do not change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import transaction_time
from apps.memory_api.curation.apply import apply_plan
from apps.memory_api.curation.consolidation.clusters import BulletClusters
from apps.memory_api.curation.consolidation.model_output import (
    ModelConsolidation,
    validate_consolidation,
)
from apps.memory_api.curation.consolidation.prompt import (
    BUILTIN,
    NAME,
    build_messages,
    choose_clusters,
)
from apps.memory_api.curation.context import embed_texts, find_nearest_bullets, to_nearby
from apps.memory_api.curation.lesson_comparison import NearbyBullet
from apps.memory_api.curation.queries import list_bullet_tools, list_changed_bullets_since
from apps.memory_api.curation.schemas import ApplyResult, CurationPlan, RejectedLesson
from apps.memory_api.llm.errors import LLMOverBudget
from apps.memory_api.llm.structured_output import request_structured
from apps.memory_api.llm.wrappers import MeteredLLM
from apps.memory_api.playbooks.editing.edits import require_playbook
from apps.memory_api.playbooks.inbox.queries import get_curation, lock_curation
from apps.memory_api.playbooks.queries import get_playbook
from apps.memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from apps.memory_api.playbooks.tables import PlaybookCurationRow, PlaybookRow
from apps.memory_api.runtime import Runtime, open_model_session
from apps.memory_api.text.terms import estimate_tokens

log = structlog.get_logger()

MIN_GROWTH_BULLETS = 8
"""Active bullets by which a playbook grows before it is consolidated."""
MAX_AGE = timedelta(days=1)
"""A changed playbook is consolidated after this time, whatever its growth."""
MIN_INTERVAL = timedelta(minutes=15)
"""Minimum time between two consolidations, also if the model fails."""
BULLETS_PER_BATCH = 100
"""Bullets that are compared with their neighbors per transaction."""
PROMPT_TOKENS_DIVISOR = 3
"""The clusters need at most a third of the tokens that a reflection may show."""


@dataclass(frozen=True)
class ConsolidationResult:
    """The result of one consolidation. `changes` are those of `ApplyResult.bullet_changes`."""

    cluster_count: int = 0
    changes: Sequence[Mapping[str, Any]] = ()
    rejected: Sequence[RejectedLesson] = ()
    proposal_id: UUID | None = None
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Clusters:
    """Clusters of a version of a playbook, and the tools of their bullets."""

    version: int
    clusters: Sequence[Sequence[NearbyBullet]] = ()
    tools: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])


def is_consolidation_due(
    playbook: PlaybookRow, curation: PlaybookCurationRow | None, now: datetime, token_count: int
) -> bool:
    """Whether the playbook changed since its last consolidation, and has grown by 8 bullets,
    exceeds its token budget, or was not consolidated for a day.
    """
    version = curation.consolidated_version if curation else 0
    active_count = curation.consolidated_count if curation else 0
    consolidated_at = curation.consolidated_at if curation else None
    if playbook.version <= version:
        return False
    growth = playbook.active_count - active_count
    if consolidated_at is None:
        return growth >= MIN_GROWTH_BULLETS or now - playbook.created_at >= MAX_AGE
    age = now - consolidated_at
    if age < MIN_INTERVAL:
        return False
    over_budget = playbook.token_budget is not None and token_count > playbook.token_budget
    return growth >= MIN_GROWTH_BULLETS or over_budget or age >= MAX_AGE


async def consolidate_if_due(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, run_id: UUID | None, *, force: bool = False
) -> ConsolidationResult:
    """Consolidate the bullets near one that changed since the last consolidation; with `force` all
    bullets, at any time. Does nothing without a model.

    Raises `PlaybookNotFound` and the model's `LLMError`.
    """
    if runtime.llm is None:
        return ConsolidationResult()
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, ref)
        since = 0
        if not force:
            curation = await get_curation(session, playbook.scope_id)
            token_count = await _count_tokens(session, playbook)
            now = await transaction_time(session)
            if not is_consolidation_due(playbook, curation, now, token_count):
                return ConsolidationResult()
            since = curation.consolidated_version if curation else 0
        # A model that fails is not asked again at once.
        locked = await lock_curation(session, playbook.scope_id)
        locked.consolidated_at = await transaction_time(session)
    found = await _find_clusters(runtime, tenant_id, ref, since)
    try:
        return await _consolidate(runtime, tenant_id, ref, found, run_id)
    except LLMOverBudget as error:
        if not error.allows_rules:
            raise
        return ConsolidationResult()  # the rules cannot consolidate


async def _count_tokens(session: AsyncSession, playbook: PlaybookRow) -> int:
    """The size of the active bullets, in estimated tokens; 0 without a budget."""
    if playbook.token_budget is None:
        return 0
    rows = await list_changed_bullets_since(session, playbook.scope_id, -1)
    return sum(estimate_tokens(f"{row.when_to_use or ''} {row.content}") for row in rows)


async def _find_clusters(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, since: int
) -> _Clusters:
    """Clusters with at least one bullet that changed after version `since`."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        playbook = await require_playbook(session, ref)
        rows = await list_changed_bullets_since(session, playbook.scope_id, since)
    clusters = BulletClusters()
    embedder = await runtime.get_tenant_embedder(tenant_id)
    for start in range(0, len(rows), BULLETS_PER_BATCH):
        batch = [to_nearby(row) for row in rows[start : start + BULLETS_PER_BATCH]]
        queries = await embed_texts(embedder, [nearby.bullet.searchable_text for nearby in batch])
        async with runtime.sessions.for_tenant(tenant_id) as session:
            for nearby, query in zip(batch, queries, strict=True):
                clusters.add(nearby, await find_nearest_bullets(session, ref, query))
    joined = clusters.join()
    ids = {nearby.id: nearby.bullet.id for cluster in joined for nearby in cluster}
    async with runtime.sessions.for_tenant(tenant_id) as session:
        tools = await list_bullet_tools(session, ids)
    return _Clusters(playbook.version, joined, {ids[id_]: names for id_, names in tools.items()})


async def _consolidate(
    runtime: Runtime, tenant_id: UUID, ref: PlaybookRef, found: _Clusters, run_id: UUID | None
) -> ConsolidationResult:
    changes = CurationPlan(version=found.version)
    rejected: Sequence[RejectedLesson] = ()
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None
    if found.clusters:
        model = open_model_session(
            runtime,
            tenant_id,
            ref.name,
            run_id,
            project_id=ref.project_id,
            builtin=BUILTIN,
            prompt_tokens=runtime.settings.llm_prompt_tokens // PROMPT_TOKENS_DIVISOR,
        )
        assert model is not None, "checked by the caller"
        clusters = choose_clusters(found.clusters, found.tools, model.prompt_tokens)
        prompt = model.prompt(NAME)
        messages = build_messages(prompt, clusters, found.tools)
        metered = MeteredLLM(model.llm)
        request = model.request(
            messages.messages,
            cache_prefix=messages.cache_prefix,
            purpose="consolidate",
            prompt_hash=prompt.hash,
        )
        answer, _ = await request_structured(metered, ModelConsolidation, request)
        validated = validate_consolidation(answer, clusters)
        changes = CurationPlan(version=found.version, changes=validated.changes, engine="llm")
        rejected, prompt_hash, usage = validated.rejected, prompt.hash, metered.usage()
    author = ChangeAuthor("curator", "Consolidation.", run_id)

    async def finish(session: AsyncSession, applied: ApplyResult) -> None:
        playbook = await get_playbook(session, ref)
        assert playbook is not None, "playbooks are never removed"
        curation = await lock_curation(session, playbook.scope_id)
        curation.consolidated_version = applied.version
        curation.consolidated_count = playbook.active_count
        await session.flush()

    applied = await apply_plan(runtime, tenant_id, ref, changes, author, on_applied=finish)
    return ConsolidationResult(
        len(found.clusters),
        applied.bullet_changes(),
        [*rejected, *applied.rejected_lessons],
        applied.proposal_id,
        prompt_hash,
        usage,
    )
