"""What a model finds in the episodes of a project: themes as memories, and proposals for playbooks.
Nothing is stored yet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID

import structlog
from pydantic import BaseModel, Field, field_validator

from memory_api.core.ids import new_id
from memory_api.core.secret_redaction import redact
from memory_api.curation.curate import curate
from memory_api.curation.schemas import CurationPlan, Lesson
from memory_api.llm.structured_output import clean_words
from memory_api.llm.untrusted_text import fence_text
from memory_api.maintenance.dreaming.context import ACTOR, MAX_STATEMENTS, ProjectInput
from memory_api.maintenance.episodes import (
    Episode,
    EpisodeAnswer,
    ask_about_episodes,
    guard_text_on_episodes,
    show_episodes,
)
from memory_api.memories.index.drafts import MemoryDraft, PreparedMemory, prepare_memories
from memory_api.memories.schemas import MemoryKind
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import PlaybookRef
from memory_api.reflection.lesson_drafts import STRATEGY_IMPORTANCE_FACTOR
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.schemas import OutcomeType

log = structlog.get_logger()

PROMPT = "maintenance/dreaming"
SOURCE = "dreaming"
MIN_EPISODES_OF_THEME = 2
MAX_THEMES = 5


class Theme(BaseModel):
    """What several episodes have in common. `episodes` and `replaces` are numbers in the prompt."""

    reflection: str = Field(min_length=1, max_length=2_000)
    strategy: str | None = Field(default=None, max_length=1_000)
    episodes: list[int] = Field(max_length=200)
    replaces: list[int] = Field(
        default_factory=list, max_length=MAX_STATEMENTS, description="Wrong earlier statements"
    )
    importance: Annotated[float, Field(ge=0, le=1)] = 0.5
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.5
    tags: list[str] = Field(default_factory=list, max_length=6)

    _clean_tags = field_validator("tags", mode="before")(clean_words)


class Themes(BaseModel):
    """The themes of the episodes; empty if they have nothing in common."""

    themes: list[Theme] = Field(max_length=MAX_THEMES)


@dataclass(frozen=True)
class StorableTheme:
    """A theme as memories, the reflection first, with its episodes and what it replaces."""

    memories: Sequence[PreparedMemory]
    episodes: Sequence[Episode]
    replaced_ids: Sequence[UUID]


@dataclass(frozen=True)
class ProjectDream:
    """The themes of one project, and the changes of playbooks that follow."""

    input: ProjectInput
    answered: EpisodeAnswer
    themes: Sequence[StorableTheme] = ()
    plans: Sequence[tuple[PlaybookRef, CurationPlan]] = ()
    """What the curator would change in playbooks."""


async def dream_about(runtime: Runtime, run: RunRow, input: ProjectInput) -> ProjectDream:
    log.info(
        "reflection_generation_started",
        tenant_id=str(run.tenant_id),
        project_id=input.project_id,
        outcome=OutcomeType.PARTIAL.value,
        event_count=len(input.episodes),
    )
    shown = await asyncio.to_thread(show_episodes, runtime.settings, input.episodes)
    statements = [f"[{n}] {each.content}" for n, each in enumerate(input.statements, start=1)]
    answered = await ask_about_episodes(
        runtime,
        run,
        input.project_id,
        PROMPT,
        Themes,
        shown,
        counts=input.counts.to_text(),
        statements=fence_text("\n".join(statements), label="statements") if statements else "none",
    )
    if answered.error is not None:
        log.error(
            "reflection_generation_failed",
            tenant_id=str(run.tenant_id),
            project_id=input.project_id,
            error=str(answered.error),
            exc_info=answered.error,
        )
    if answered.answer is None:
        return ProjectDream(input, answered)
    themes = await _to_themes(runtime, run, input, shown, answered)
    for theme in themes:
        reflection = theme.memories[0].draft
        log.info(
            "reflection_generated",
            tenant_id=str(run.tenant_id),
            project_id=input.project_id,
            importance=reflection.importance,
            confidence=reflection.confidence,
            has_strategy=len(theme.memories) > 1,
        )
    return ProjectDream(input, answered, themes, await _plan(runtime, run, input, themes))


async def _to_themes(
    runtime: Runtime,
    run: RunRow,
    input: ProjectInput,
    shown: Sequence[str],
    answered: EpisodeAnswer,
) -> list[StorableTheme]:
    """The themes that at least two episodes show. One that repeats an instruction of an episode
    replaces nothing: whoever wrote the instruction could make room for it.
    """
    found: list[tuple[Theme, list[MemoryDraft], list[Episode]]] = []
    answer: Themes = answered.answer
    for theme in answer.themes:
        numbers = {number for number in theme.episodes if 1 <= number <= len(input.episodes)}
        if len(numbers) >= MIN_EPISODES_OF_THEME:
            episodes = [input.episodes[number - 1] for number in sorted(numbers)]
            found.append((theme, _drafts(run, input, theme, episodes, answered.model), episodes))
    drafts = [draft for _, theme_drafts, _ in found for draft in theme_drafts]
    guarded = await guard_text_on_episodes(drafts, input.episodes, shown, run.tenant_id)
    embedder = await runtime.get_tenant_embedder(run.tenant_id)
    prepared = {item.draft.id: item for item in await prepare_memories(embedder, guarded)}
    repeating = {
        draft.id
        for draft, safe in zip(drafts, guarded, strict=True)
        if safe.awaiting_confirmation or safe.content != draft.content
    }
    count = len(input.statements)
    return [
        StorableTheme(
            [prepared[draft.id] for draft in drafts],
            episodes,
            [input.statements[n - 1].id for n in sorted({*theme.replaces}) if 1 <= n <= count]
            if repeating.isdisjoint(draft.id for draft in drafts)
            else (),
        )
        for theme, drafts, episodes in found
    ]


def _drafts(
    run: RunRow, input: ProjectInput, theme: Theme, episodes: Sequence[Episode], model: str | None
) -> list[MemoryDraft]:
    """The reflection and its strategy. The counts in the metadata say of how many runs they are."""
    categories = {episode.error_category for episode in episodes}
    reflection = MemoryDraft(
        kind=MemoryKind.REFLECTION,
        project_id=input.project_id,
        content=redact(theme.reflection).text,
        tags=[*(redact(tag).text for tag in theme.tags), SOURCE],
        importance=theme.importance,
        confidence=theme.confidence,
        source=SOURCE,
        error_category=categories.pop() if len(categories) == 1 else None,
        outcome=OutcomeType.PARTIAL.value,
        metadata={
            "outcome": OutcomeType.PARTIAL.value,
            "task_description": "Patterns in recent runs",
            "event_count": len(episodes),
            "session_id": None,
            "model": model,
            "counts": {
                "episodes": len(episodes),
                "episodes_read": len(input.episodes),
                **input.counts.to_json(),
            },
        },
        actor=ACTOR,
        run_id=run.id,
    )
    if not theme.strategy:
        return [reflection]
    strategy = replace(
        reflection,
        id=new_id(),
        kind=MemoryKind.STRATEGY,
        content=redact(theme.strategy).text,
        tags=[*reflection.tags, "strategy"],
        importance=min(1.0, theme.importance * STRATEGY_IMPORTANCE_FACTOR),
    )
    return [reflection, strategy]


async def _plan(
    runtime: Runtime, run: RunRow, input: ProjectInput, themes: Sequence[StorableTheme]
) -> list[tuple[PlaybookRef, CurationPlan]]:
    """What the curator would change in each playbook that at least two traces of a theme name.
    Strategies that wait for confirmation are not proposed.
    """
    lessons: dict[str, list[Lesson]] = {}
    for theme in themes:
        names = Counter(episode.playbook for episode in theme.episodes if episode.playbook)
        strategies = [m.draft for m in theme.memories if m.draft.kind is MemoryKind.STRATEGY]
        for name in (name for name, count in names.items() if count >= MIN_EPISODES_OF_THEME):
            lessons.setdefault(name, []).extend(
                _lesson(draft) for draft in strategies if not draft.awaiting_confirmation
            )
    plans: list[tuple[PlaybookRef, CurationPlan]] = []
    for name, of_playbook in sorted(lessons.items()):
        ref = PlaybookRef(input.project_id, name)
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            playbook = await get_playbook(session, ref)
        if not of_playbook or playbook is None or playbook.deleted_at is not None:
            continue
        plan = await curate(
            runtime, run.tenant_id, ref, of_playbook, run_id=run.id, fallback_to_rules=True
        )
        # A dream is no further trace, so what is known gets no observation.
        plan = plan.model_copy(update={"known_lessons": []})
        if plan.changes:
            plans.append((ref, plan))
    return plans


def _lesson(draft: MemoryDraft) -> Lesson:
    return Lesson(
        text=draft.content,
        memory_id=draft.id,
        importance=draft.importance,
        confidence=0.5 if draft.confidence is None else draft.confidence,
        tags=[tag for tag in draft.tags if tag != "strategy"],
        outcome=draft.outcome,
    )
