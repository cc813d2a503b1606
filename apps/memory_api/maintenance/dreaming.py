"""The task `dreaming`: reflects on the recent episodes of each project together (spec 5).

The episodes of the time window with enough importance are read as one trace with the outcome
`partial`, and a model looks for themes. Without a model nothing is stored: the episodes are a
sample, so their counts are no statement about all runs, and analytics counts those. Reflections and
strategies are linked to the episodes that they come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

import structlog
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import transaction_time
from memory_api.core.ids import new_id
from memory_api.core.resources import load_sql
from memory_api.core.secret_redaction import redact
from memory_api.llm.errors import LLMError
from memory_api.maintenance.episodes import Episode, ask_about_episodes
from memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from memory_api.memories.index.scopes import ensure_scopes
from memory_api.memories.index.writer import insert_memories
from memory_api.memories.queries import NewLink, add_links, find_same_text
from memory_api.memories.schemas import MemoryKind
from memory_api.reflection.outside_text import (
    Origin,
    OutsideText,
    OutsideTexts,
    guard_lessons,
)
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.schemas import OutcomeType

log = structlog.get_logger()

DREAMING = "dreaming"
PROMPT = "maintenance/dreaming"
SOURCE = "dreaming"
MIN_EPISODES = 3
MIN_EPISODES_OF_THEME = 2
MAX_THEMES = 5
STRATEGY_IMPORTANCE_FACTOR = 1.1
RECENT_EPISODES = load_sql("maintenance/maintenance.sql", "recent_episodes")
RECENT_PROJECTS = load_sql("maintenance/maintenance.sql", "recent_projects")


class Theme(BaseModel):
    """What several episodes have in common. `episodes` are their numbers in the prompt."""

    reflection: str = Field(min_length=1, max_length=2_000)
    strategy: str | None = Field(default=None, max_length=1_000)
    episodes: list[int] = Field(max_length=200)
    importance: Annotated[float, Field(ge=0, le=1)] = 0.5
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.5
    tags: list[str] = Field(default_factory=list, max_length=6)


class Themes(BaseModel):
    """The themes of the episodes; empty if they have nothing in common."""

    themes: list[Theme] = Field(max_length=MAX_THEMES)


async def dream(runtime: Runtime, run: RunRow) -> StepResult:
    """Reflects on the recent episodes of every project of the tenant that has at least three."""
    settings = runtime.settings
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        lookback = timedelta(hours=settings.dreaming_lookback_hours)
        since = await transaction_time(session) - lookback
        parameters = {"tenant": run.tenant_id, "since": since}
        projects = (await session.scalars(RECENT_PROJECTS, parameters)).all()
    data: dict[str, Any] = {"projects": {}}
    engine, prompt_hash, usages = "rules", None, Counter[str]()
    failure: LLMError | None = None
    for project in projects:
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            rows = await session.execute(
                RECENT_EPISODES,
                parameters
                | {
                    "project": project,
                    "min_importance": settings.dreaming_min_importance,
                    "limit": settings.dreaming_max_samples,
                },
            )
            episodes = [
                Episode(
                    row.id,
                    row.content,
                    row.importance,
                    row.outcome,
                    row.trace_id,
                    row.created_at,
                    row.error_category,
                )
                for row in rows
            ]
        if len(episodes) < MIN_EPISODES:
            continue
        log.info(
            "reflection_generation_started",
            tenant_id=str(run.tenant_id),
            project_id=project,
            outcome=OutcomeType.PARTIAL.value,
            event_count=len(episodes),
        )
        answered = await ask_about_episodes(runtime, run, project, PROMPT, Themes, episodes)
        failure = answered.error or failure
        usages.update({k: v for k, v in (answered.usage or {}).items() if _is_number(v)})
        if answered.answer is None:
            continue
        themes, engine, prompt_hash = answered.answer.themes, "llm", answered.prompt_hash
        stored = await _store(runtime, run, project, episodes, themes)
        data["projects"][project] = {"episodes": len(episodes), "memories": stored}
    return StepResult(
        data=data,
        engine=engine,
        prompt_hash=prompt_hash,
        usage=dict(usages) if usages else None,
        degraded_by=failure,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


async def _store(
    runtime: Runtime,
    run: RunRow,
    project_id: str,
    episodes: Sequence[Episode],
    themes: Sequence[Theme],
) -> list[str]:
    """Stores themes that at least two episodes show, with links to them, unless the same text is
    stored already. Returns the IDs of the new memories.
    """
    sources: dict[Any, list[Episode]] = {}
    drafts: list[MemoryDraft] = []
    for theme in themes:
        numbers = {number for number in theme.episodes if 1 <= number <= len(episodes)}
        if len(numbers) < MIN_EPISODES_OF_THEME:
            continue
        reflection = MemoryDraft(
            kind=MemoryKind.REFLECTION,
            project_id=project_id,
            content=redact(theme.reflection).text,
            tags=[*(redact(tag).text for tag in theme.tags), "dreaming"],
            importance=theme.importance,
            confidence=theme.confidence,
            source=SOURCE,
            outcome=OutcomeType.PARTIAL.value,
            metadata={"event_count": len(numbers)},
            actor=f"engine:{SOURCE}",
            run_id=run.id,
        )
        found = [reflection]
        if theme.strategy:
            importance = min(1.0, theme.importance * STRATEGY_IMPORTANCE_FACTOR)
            strategy = replace(
                reflection,
                id=new_id(),
                kind=MemoryKind.STRATEGY,
                content=redact(theme.strategy).text,
                tags=[*reflection.tags, "strategy"],
                importance=importance,
            )
            found.append(strategy)
        drafts += found
        sources |= {draft.id: [episodes[n - 1] for n in sorted(numbers)] for draft in found}
    shown = [OutsideText(Origin.MEMORY, episode.content) for episode in episodes]
    drafts = await guard_lessons(drafts, OutsideTexts(shown))
    items = await prepare_memories(await runtime.get_tenant_embedder(run.tenant_id), drafts)
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        items = [item for item, is_known in await _known(session, items) if not is_known]
        await insert_memories(session, items)
        links = [
            NewLink(item.draft.id, "derived_from", "memory", episode.id)
            for item in items
            for episode in sources[item.draft.id]
        ]
        await add_links(session, links)
    for item in items:
        log.info(
            "reflection_stored",
            tenant_id=str(run.tenant_id),
            project_id=project_id,
            memory_id=str(item.draft.id),
        )
    return [str(item.draft.id) for item in items]


async def _known(session: AsyncSession, items: Sequence[Any]) -> list[tuple[Any, bool]]:
    scopes = await ensure_scopes(session, [item.draft.scope_address for item in items])
    keys = [(scopes[item.draft.scope_address], item.fingerprint) for item in items]
    known = await find_same_text(session, keys)
    return [(item, key in known) for item, key in zip(items, keys, strict=True)]
